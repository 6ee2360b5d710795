package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// FirstFollowUps returns when the first of what is left to do for each of some tenants is due. It
// leaves out tenants for which there is nothing.
func (s *Trees) FirstFollowUps(
	ctx context.Context, tenants []string,
) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants,
		`SELECT i, least((SELECT min(due) FROM {schema}.outbox),
		(SELECT min(until) FROM {schema}.edges WHERE status IS NULL),
		(SELECT min(until) FROM {schema}.signal_waits WHERE NOT late))`)
	return all, postgres.Wrap(err, "FirstFollowUps")
}

// SweepWaits ends the waits for tasks and signals that didn't come in time. It returns how many of
// them, and of the rows that FollowUp has to handle, are due, and reports whether more waits may
// have to end.
func (s *Trees) SweepWaits(ctx context.Context, tenant string) (n int, more bool, err error) {
	due, err := s.DryRunFollowUps(ctx, tenant)
	for _, d := range due {
		n += d.Rows
	}
	if err != nil || n == 0 {
		return n, false, err
	}
	late, err := s.SweepEdges(ctx, tenant)
	if err != nil {
		return n, false, err
	}
	timedOut, err := s.sweepSignalWaits(ctx, tenant)
	return n, late == catalog.JobBatch || timedOut == catalog.JobBatch, err
}

// DryRunFollowUps counts the rows that are due: waits that end, and what FollowUp has to handle.
func (s *Trees) DryRunFollowUps(ctx context.Context, tenant string) ([]catalog.Due, error) {
	n := 0
	now := s.core.Clock.Now()
	err := s.core.FollowDB(tenant).QueryRow(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT (SELECT count(*) FROM {outbox} WHERE due <= $1)
		  + (SELECT count(*) FROM {edges} WHERE status IS NULL AND until <= $1)
		  + (SELECT count(*) FROM {signal_waits} WHERE NOT late AND until <= $1)`), now).Scan(&n)
	if err != nil || n == 0 {
		return nil, postgres.Wrap(err, "DryRunFollowUps(%q)", tenant)
	}
	return []catalog.Due{{Tenant: tenant, Rows: n}}, nil
}

// SweepEdges closes a tenant's overdue edges, at most JobBatch, and returns their number.
func (s *Trees) SweepEdges(ctx context.Context, tenant string) (n int, err error) {
	now := s.core.Clock.Now()
	shared := config.NewTables(tenant, config.SharedSet)
	err = pgx.BeginFunc(ctx, s.core.FollowDB(tenant), func(tx pgx.Tx) error {
		if err := postgres.Pin(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, shared.SQL(0, `
			UPDATE {edges} e SET status = 'late' FROM (
			  SELECT type, id, n FROM {edges} WHERE status IS NULL AND until <= $1
			  ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED) o
			WHERE e.type = ANY (ARRAY[o.type]) AND e.id BETWEEN o.id AND o.id
			  AND e.n BETWEEN o.n AND o.n RETURNING e.type, e.id`), now, catalog.JobBatch)
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

// LookAtSignalWaits has FollowUp look at the tasks of a type that wait for signals, once all nodes
// know how the type's stages have changed: until then, tasks may come to wait by the old ones.
func LookAtSignalWaits(ctx context.Context, tx pgx.Tx, tenant, name string, now time.Time) error {
	_, err := tx.Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		INSERT INTO {outbox} (kind, due, type, id)
		SELECT $1, $2, number, 0 FROM {types} WHERE name = $3`),
		records.OutboxSignalWaits, now.Add(awaitedAnew), name)
	return err
}

// sweepSignalWaits has FollowUp end a tenant's overdue waits for signals, at most JobBatch, and
// returns their number.
func (s *Trees) sweepSignalWaits(ctx context.Context, tenant string) (n int, err error) {
	now := s.core.Clock.Now()
	shared := config.NewTables(tenant, config.SharedSet)
	err = pgx.BeginFunc(ctx, s.core.FollowDB(tenant), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, shared.SQL(0, `
			UPDATE {signal_waits} SET late = true WHERE ctid = ANY (ARRAY(
			  SELECT ctid FROM {signal_waits} WHERE NOT late AND until <= $1
			  ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED))
			RETURNING type, id`), now, catalog.JobBatch)
		if err != nil {
			return err
		}
		return s.lookAtAll(ctx, tx, shared, records.OutboxSignal, rows, &n)
	})
	if err == nil && n > 0 {
		s.core.TellFollowUp(tenant)
	}
	return n, postgres.Wrap(err, "sweepSignalWaits(%q)", tenant)
}
