package trees

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// The votes on a task are its children: see asyncflow.Quorum. Their journal tells who voted, and
// for what. The table `votes` says who holds or cast a vote, so that nobody votes twice.

// votesSQL reads the ends of children of one run.
const votesSQL = `
SELECT id, final, coalesce(endpoint, ''), output, at FROM {journal}
WHERE type = $1 AND id BETWEEN $2 AND $3 AND final IS NOT NULL ORDER BY id`

// QueueVotes reads the votes on a task that are cast.
func QueueVotes(b *pgx.Batch, t *config.Type, o *records.FanOut, all *[]asyncflow.Vote) {
	for _, r := range o.Runs(0, o.Spawned) {
		if !t.Has(r.Position()) {
			continue
		}
		b.Queue(t.SQL(r.Position(), votesSQL), t.Number(), r.First, r.Last()).
			Query(func(rows pgx.Rows) error {
				v := asyncflow.Vote{}
				endpoint := ""
				var output []byte
				v.Task.Type = t.Name
				_, err := pgx.ForEachRow(rows,
					[]any{&v.Task.Number, &v.Status, &endpoint, &output, &v.At}, func() error {
						endpoint, _, _ = asyncflow.ParseRunPlace(endpoint)
						v.Claimer, v.Subject = asyncflow.ClaimerOf(endpoint)
						v.Outcome = o.Rule.Quorum.Outcome(output)
						*all = append(*all, v)
						output = nil
						return nil
					})
				return err
			})
	}
}

// readTallies counts the votes of the fan-outs with votes.
func (f *followUp) readTallies(t *config.Type, all []*records.FanOut) error {
	b := &pgx.Batch{}
	votes := map[*records.FanOut]*[]asyncflow.Vote{}
	for _, o := range all {
		if o.Rule.Quorum != nil {
			votes[o] = &[]asyncflow.Vote{}
			QueueVotes(b, t, o, votes[o])
		}
	}
	if b.Len() > 0 {
		if err := f.tx.SendBatch(f.ctx, b).Close(); err != nil {
			return err
		}
	}
	for o, cast := range votes {
		o.Tally = o.Rule.Quorum.Count(*cast)
	}
	return f.trust(t, all)
}

// voted returns the output, or the error, of a task on which the vote is over.
func voted(o *records.FanOut) (output json.RawMessage, problem string) {
	if o.Stopped {
		return nil, o.Tally.String()
	}
	doc, err := json.Marshal(o.Tally)
	if err != nil {
		return nil, err.Error()
	}
	return doc, ""
}

// queueCloseVotes forgets who voted on a task, except for late voters.
func queueCloseVotes(b *pgx.Batch, t *config.Type, o *records.FanOut) {
	if o.Tally != nil {
		b.Queue(t.SQL(0, `DELETE FROM {votes} WHERE type = $1 AND key = $2 AND until IS NULL`),
			t.Number(), o.VoteKey())
	}
}
