package hot

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// mayVote reports whether a claimer may vote by a late report: the claimer cast no other vote on
// the task, and gets none until the end of the transaction.
func mayVote(
	ctx context.Context, tx pgx.Tx, t *config.Type, l asyncflow.Lease, o asyncflow.Outcome,
) (may bool, err error) {
	key := l.Options.Child.VoteKey()
	claimer, _ := asyncflow.ClaimerOf(o.Endpoint)
	if key == "" || claimer == "" {
		return true, nil
	}
	b := &pgx.Batch{}
	catalog.QueueLocks(b, t.Set().Tables, catalog.ClaimerLock,
		catalog.ClaimerNumber(t, l.Stage, claimer))
	b.Queue(t.SQL(0, `SELECT NOT EXISTS (SELECT FROM {votes}
		WHERE type = $1 AND claimer = $2 AND key = $3)`), t.Number(), claimer, key).
		QueryRow(func(row pgx.Row) error { return row.Scan(&may) })
	return may, tx.SendBatch(ctx, b).Close()
}

// queueAddLateVoter writes down that a claimer voted by a late report.
func queueAddLateVoter(b *pgx.Batch, t *config.Type, l asyncflow.Lease, o asyncflow.Outcome) {
	key := l.Options.Child.VoteKey()
	claimer, _ := asyncflow.ClaimerOf(o.Endpoint)
	if key != "" && claimer != "" {
		b.Queue(t.SQL(0, `INSERT INTO {votes} (type, claimer, key) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`), t.Number(), claimer, key)
	}
}
