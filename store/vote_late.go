package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// LateVotesKept is how long a late vote is kept.
const LateVotesKept = 7 * 24 * time.Hour

// LateVote records the vote of a claimer, by an attempt that is over, on the parent of a task, if
// that was decided before, and reports whether it was. Of several late votes of a claimer on a task
// the first one stays.
func (s *Store) LateVote(
	ctx context.Context, t *Type, id asyncflow.TaskID, seq int, claimer string, output []byte,
) (decided bool, err error) {
	b := &pgx.Batch{}
	options := queueOptions(b, t, []int64{id.Number})
	subject := ""
	b.Queue(t.at(id.Position(), `SELECT coalesce(endpoint, '') FROM {journal}
		WHERE type = $1 AND id = $2 AND seq = $3`), t.number, id.Number, seq).
		Query(func(rows pgx.Rows) error {
			endpoint := ""
			_, err := pgx.ForEachRow(rows, []any{&endpoint}, func() error { return nil })
			_, subject = asyncflow.ClaimerOf(endpoint)
			return err
		})
	if err = s.of(t.Tenant).Send(ctx, b); err != nil {
		return false, wrap(err, "LateVote(%s)", id)
	}
	child := options[id.Number].Child
	if child.VoteKey() == "" {
		return false, nil
	}
	o, err := latestFanOut(ctx, s.of(t.Tenant), t, child.Parent, child.Seq, "")
	if err != nil || o == nil || !o.closed || o.stopped {
		return false, wrap(err, "LateVote(%s)", id)
	}
	outcome := o.rule.Quorum.Outcome(output)
	if outcome == nil {
		return true, nil
	}
	now := s.Clock.Now()
	_, err = s.of(t.Tenant).Exec(ctx, t.at(0, `
		INSERT INTO {votes} (type, claimer, key, late, at, until, subject)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT DO NOTHING`), t.number, claimer, child.VoteKey(), string(outcome), now,
		now.Add(LateVotesKept), orNull(subject))
	return true, wrap(err, "LateVote(%s)", id)
}

// mayVote reports whether a claimer may vote by a late report: it has no other vote on the task,
// and gets none until the end of the transaction.
func mayVote(
	ctx context.Context, tx pgx.Tx, t *Type, l asyncflow.Lease, o asyncflow.Outcome,
) (may bool, err error) {
	key := l.Options.Child.VoteKey()
	claimer, _ := asyncflow.ClaimerOf(o.Endpoint)
	if key == "" || claimer == "" {
		return true, nil
	}
	b := &pgx.Batch{}
	queueLocks(b, t.set.tables, claimerLock, claimerNumber(t, l.Stage, claimer))
	b.Queue(t.at(0, `SELECT NOT EXISTS (SELECT FROM {votes}
		WHERE type = $1 AND claimer = $2 AND key = $3)`), t.number, claimer, key).
		QueryRow(func(row pgx.Row) error { return row.Scan(&may) })
	return may, tx.SendBatch(ctx, b).Close()
}

// queueAddLateVoter writes down that a claimer has voted by a late report.
func queueAddLateVoter(b *pgx.Batch, t *Type, l asyncflow.Lease, o asyncflow.Outcome) {
	key := l.Options.Child.VoteKey()
	claimer, _ := asyncflow.ClaimerOf(o.Endpoint)
	if key != "" && claimer != "" {
		b.Queue(t.at(0, `INSERT INTO {votes} (type, claimer, key) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`), t.number, claimer, key)
	}
}
