package trees

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// SweepEdges closes a tenant's overdue edges, at most JobBatch, and returns their number.
func (s *Trees) SweepEdges(ctx context.Context, tenant string) (n int, err error) {
	now := s.core.Clock.Now()
	shared := config.NewTables(tenant, config.SharedSet)
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, shared.SQL(0, `
			UPDATE {edges} e SET status = 'late' FROM (
			  SELECT type, id, n FROM {edges} WHERE status IS NULL AND until <= $1
			  ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED) c
			WHERE e.type = c.type AND e.id = c.id AND e.n = c.n RETURNING e.type, e.id`), now,
			catalog.JobBatch)
		if err != nil {
			return err
		}
		return s.lookAtAll(ctx, tx, shared, records.OutboxLook, rows, &n)
	})
	if err == nil && n > 0 {
		s.core.TellFollowUp(tenant)
	}
	return n, postgres.Wrap(err, "SweepEdges(%q)", tenant)
}

// lookAtAll queues looks at tasks whose waits are over: at the dependents of closed edges, or at
// tasks that waited for a signal. It counts the waits.
func (s *Trees) lookAtAll(
	ctx context.Context, tx pgx.Tx, t *config.TableNames, kind records.OutboxKind, closed pgx.Rows,
	n *int,
) error {
	all := records.Inserts{Tables: t}
	r := records.OutboxRow{Kind: kind}
	_, err := pgx.ForEachRow(closed, []any{&r.Number, &r.ID}, func() error {
		all.Outbox = append(all.Outbox, r)
		return nil
	})
	*n = len(all.Outbox)
	if err != nil || *n == 0 {
		return err
	}
	b := &pgx.Batch{}
	all.Queue(b, s.core.Clock.Now())
	return tx.SendBatch(ctx, b).Close()
}
