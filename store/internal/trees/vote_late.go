package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// lateVotesKept is how long a late vote is kept.
const lateVotesKept = 7 * 24 * time.Hour

// LateVote records the vote of a claimer, by an attempt that is over, on the parent of a task, if
// that was decided before, and reports whether it was. Of several late votes of a claimer on a task
// the first one stays. Nothing is kept once either task was erased.
func (s *Trees) LateVote(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, claimer string,
	output []byte,
) (decided bool, err error) {
	b := &pgx.Batch{}
	options := records.QueueOptions(b, t, []int64{id.Number})
	subject := ""
	b.Queue(t.SQL(id.Position(), `SELECT coalesce(endpoint, '') FROM {journal}
		WHERE type = $1 AND id = $2 AND seq = $3`), t.Number(), id.Number, seq).
		Query(func(rows pgx.Rows) error {
			endpoint := ""
			_, err := pgx.ForEachRow(rows, []any{&endpoint}, func() error { return nil })
			endpoint, _, _ = asyncflow.ParseRunLocation(endpoint)
			_, subject = asyncflow.ClaimerOf(endpoint)
			return err
		})
	if err = s.core.DB(t.Tenant).Send(ctx, b); err != nil {
		return false, postgres.Wrap(err, "LateVote(%s)", id)
	}
	child := options[id.Number].Child
	if child.VoteKey() == "" {
		return false, nil
	}
	o, err := records.LatestFanOut(ctx, s.core.DB(t.Tenant), t, child.Parent, child.Seq, "")
	if err != nil || o == nil || !o.Closed || o.Stopped {
		return false, postgres.Wrap(err, "LateVote(%s)", id)
	}
	outcome := o.Rule.Quorum.Outcome(output)
	if outcome == nil {
		return true, nil
	}
	kept := false
	now := s.core.Clock.Now()
	err = pgx.BeginFunc(ctx, s.core.DB(t.Tenant), func(tx pgx.Tx) error {
		for _, number := range []int64{id.Number, child.Parent} {
			if has, err := holdContents(ctx, tx, t, number); err != nil || !has {
				return err
			}
		}
		tag, err := tx.Exec(ctx, t.SQL(0, `
			INSERT INTO {votes} (type, claimer, key, late, at, until, subject)
			VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT DO NOTHING`), t.Number(), claimer, child.VoteKey(), string(outcome), now,
			now.Add(lateVotesKept), postgres.OrNull(subject))
		kept = tag.RowsAffected() == 1
		return err
	})
	if err == nil && kept {
		s.core.Times.Count(catalog.TimesKey{TypeKey: t.Key(), Stage: o.Stage},
			func(c *catalog.TimesCounts) { c.LateVotes++ })
	}
	return true, postgres.Wrap(err, "LateVote(%s)", id)
}

// holdContents reports whether a task has its contents, and will until the end of the transaction.
// It doesn't wait for an erasure that has the row: the task has none then.
func holdContents(
	ctx context.Context, tx pgx.Tx, t *config.Type, number int64,
) (has bool, err error) {
	position := asyncflow.TaskID{Number: number}.Position()
	if !t.Has(position) { // its roll was dropped
		return false, nil
	}
	tag, err := tx.Exec(ctx, t.SQL(position, `SELECT FROM {task} WHERE type = $1 AND id = $2
		AND options -> 'erased' IS NULL FOR SHARE SKIP LOCKED`), t.Number(), number)
	return tag.RowsAffected() == 1, err
}
