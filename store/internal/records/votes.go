package records

import (
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// VoteRow is a row of votes.
type VoteRow struct {
	Number       int32
	Claimer, Key string
}

// removeVoter lets a claimer vote on a task again after a claim without a vote.
func (r *Inserts) removeVoter(t *config.Type, s *asyncflow.Settlement) {
	key := s.Lease.Options.Child.VoteKey()
	claimer, _ := asyncflow.ClaimerOf(s.Outcome.Endpoint)
	if key != "" && claimer != "" && s.Verdict.Final() == "" {
		r.Tables = t.Set().Tables
		r.removedVoters = append(r.removedVoters, VoteRow{t.Number(), claimer, key})
	}
}

func queueRemoveVoters(b *pgx.Batch, t *config.TableNames, rows []VoteRow) {
	b.Queue(t.SQL(0, `DELETE FROM {votes} v
		USING unnest($1::int[], $2::text[], $3::text[]) AS u (type, claimer, key)
		WHERE v.type = u.type AND v.claimer = u.claimer AND v.key = u.key`),
		Column(rows, func(r *VoteRow) int32 { return r.Number }),
		Column(rows, func(r *VoteRow) string { return r.Claimer }),
		Column(rows, func(r *VoteRow) string { return r.Key }))
}
