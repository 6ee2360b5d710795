package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// voteRow is a row of votes.
type voteRow struct {
	number       int32
	claimer, key string
}

// removeVoter lets a claimer vote on a task again whose claim ended without a vote.
func (r *rows) removeVoter(t *Type, s *asyncflow.Settlement) {
	key := s.Lease.Options.Child.VoteKey()
	claimer, _ := asyncflow.ClaimerOf(s.Outcome.Endpoint)
	if key != "" && claimer != "" && s.Verdict.Final() == "" {
		r.tables = t.set.tables
		r.removedVoters = append(r.removedVoters, voteRow{t.number, claimer, key})
	}
}

func queueRemoveVoters(b *pgx.Batch, t *tables, rows []voteRow) {
	b.Queue(t.at(0, `DELETE FROM {votes} v
		USING unnest($1::int[], $2::text[], $3::text[]) AS u (type, claimer, key)
		WHERE v.type = u.type AND v.claimer = u.claimer AND v.key = u.key`),
		column(rows, func(r *voteRow) int32 { return r.number }),
		column(rows, func(r *voteRow) string { return r.claimer }),
		column(rows, func(r *voteRow) string { return r.key }))
}
