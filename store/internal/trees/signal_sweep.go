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

// LookAtSignalWaits has FollowUp look at the tasks of a type that wait for signals, once all nodes
// know how the type's stages have changed: until then, tasks may come to wait by the old ones.
func LookAtSignalWaits(ctx context.Context, tx pgx.Tx, tenant, name string, now time.Time) error {
	_, err := tx.Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		INSERT INTO {outbox} (kind, due, type, id)
		SELECT $1, $2, number, 0 FROM {types} WHERE name = $3`),
		records.OutboxSignalWaits, now.Add(awaitedAnew), name)
	return err
}

// SweepSignalWaits has FollowUp end a tenant's overdue waits for signals, at most JobBatch, and
// returns their number.
func (s *Trees) SweepSignalWaits(ctx context.Context, tenant string) (n int, err error) {
	now := s.core.Clock.Now()
	shared := config.NewTables(tenant, config.SharedSet)
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
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
	return n, postgres.Wrap(err, "SweepSignalWaits(%q)", tenant)
}
