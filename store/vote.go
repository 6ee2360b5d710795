package store

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// The votes on a task are its children: see asyncflow.Quorum. Their journal has who voted, and for
// what. The table votes says who holds or has cast a vote, so that nobody votes twice.

// votesSQL reads the ends of children of one run.
const votesSQL = `
SELECT id, final, coalesce(endpoint, ''), output, at FROM {journal}
WHERE type = $1 AND id BETWEEN $2 AND $3 AND final IS NOT NULL ORDER BY id`

// queueVotes reads the votes on a task that are cast.
func queueVotes(b *pgx.Batch, t *Type, o *fanOut, all *[]asyncflow.Vote) {
	for _, r := range o.runs(0, o.spawned) {
		if !t.Has(r.position()) {
			continue
		}
		b.Queue(t.at(r.position(), votesSQL), t.number, r.first, r.last()).
			Query(func(rows pgx.Rows) error {
				v, endpoint, output := asyncflow.Vote{}, "", []byte(nil)
				v.Task.Type = t.Name
				_, err := pgx.ForEachRow(rows, []any{&v.Task.Number, &v.Status, &endpoint, &output, &v.At},
					func() error {
						v.Claimer, v.Subject = asyncflow.ClaimerOf(endpoint)
						v.Outcome = o.rule.Quorum.Outcome(output)
						*all, output = append(*all, v), nil
						return nil
					})
				return err
			})
	}
}

// readTallies counts the votes of those fan-outs that have some.
func (f *followUp) readTallies(t *Type, all []*fanOut) error {
	b := &pgx.Batch{}
	votes := map[*fanOut]*[]asyncflow.Vote{}
	for _, o := range all {
		if o.rule.Quorum != nil {
			votes[o] = &[]asyncflow.Vote{}
			queueVotes(b, t, o, votes[o])
		}
	}
	if b.Len() > 0 {
		if err := f.tx.SendBatch(f.ctx, b).Close(); err != nil {
			return err
		}
	}
	for o, cast := range votes {
		o.tally = o.rule.Quorum.Count(*cast)
	}
	return f.trust(t, all)
}

// voted returns the output, or the error, of a task on which the vote is over.
func voted(o *fanOut) (output json.RawMessage, problem string) {
	if o.stopped {
		return nil, o.tally.String()
	}
	doc, err := json.Marshal(o.tally)
	if err != nil {
		return nil, err.Error()
	}
	return doc, ""
}

// queueCloseVotes forgets who has voted on a task, except for those who came late.
func queueCloseVotes(b *pgx.Batch, t *Type, o *fanOut) {
	if o.tally != nil {
		b.Queue(t.at(0, `DELETE FROM {votes} WHERE type = $1 AND key = $2 AND until IS NULL`), t.number,
			o.voteKey())
	}
}

// voteKey returns what the votes of a fan-out have in common.
func (o *fanOut) voteKey() string {
	return (&asyncflow.Child{Parent: o.id, Seq: int(o.seq), Vote: true}).VoteKey()
}
