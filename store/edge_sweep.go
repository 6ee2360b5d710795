package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// SweepEdges closes a tenant's edges whose time is over, at most JobBatch, and returns how many.
func (s *trees) SweepEdges(ctx context.Context, tenant string) (n int, err error) {
	now := s.Clock.Now()
	shared := newTables(tenant, sharedSet)
	err = pgx.BeginFunc(ctx, s.of(tenant), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, shared.at(0, `
			UPDATE {edges} e SET status = 'late' FROM (
			  SELECT type, id, n FROM {edges} WHERE status IS NULL AND until <= $1
			  ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED) c
			WHERE e.type = c.type AND e.id = c.id AND e.n = c.n RETURNING e.type, e.id`), now, JobBatch)
		if err != nil {
			return err
		}
		return s.lookAtAll(ctx, tx, shared, rows, &n)
	})
	if err == nil && n > 0 {
		s.tellFollowUp(tenant)
	}
	return n, wrap(err, "SweepEdges(%q)", tenant)
}

// lookAtAll has the dependents of closed edges looked at. It counts the edges.
func (s *trees) lookAtAll(
	ctx context.Context, tx pgx.Tx, t *tables, closed pgx.Rows, n *int,
) error {
	all := rows{tables: t}
	r := outboxRow{kind: outboxLook}
	_, err := pgx.ForEachRow(closed, []any{&r.number, &r.id}, func() error {
		all.outbox = append(all.outbox, r)
		return nil
	})
	*n = len(all.outbox)
	if err != nil || *n == 0 {
		return err
	}
	b := &pgx.Batch{}
	all.queue(b, s.Clock.Now())
	return tx.SendBatch(ctx, b).Close()
}
