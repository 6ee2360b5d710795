package records

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// ReadOptions sets the options of leases, and when their tasks were submitted.
func ReadOptions(ctx context.Context, tx pgx.Tx, t *config.Type, leases []asyncflow.Lease) error {
	b := &pgx.Batch{}
	ids := Column(leases, func(l *asyncflow.Lease) int64 { return l.ID.Number })
	options := QueueOptions(b, t, ids)
	created := QueueCreated(b, t, ids)
	err := tx.SendBatch(ctx, b).Close()
	for i := range leases {
		leases[i].Options = options[leases[i].ID.Number]
		leases[i].CreatedAt = created[leases[i].ID.Number]
	}
	return err
}

// OptionsOf has the options of the tasks with options.
type OptionsOf map[int64]asyncflow.Options

// These statements read tasks of one roll, $2, by their ids $1. For their form see TakeAnyWaitSQL.
const (
	OptionsSQL = `
SELECT id, options FROM (
  SELECT t.id, {options} AS options
  FROM unnest($1::bigint[]) AS u (id), LATERAL (
    SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t) t
WHERE options IS NOT NULL`
	CreatedSQL = `
SELECT t.id, t.created_at
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t`
)

// QueueOptions reads the options of tasks; the map is filled with the batch.
func QueueOptions(b *pgx.Batch, t *config.Type, ids []int64) OptionsOf {
	all := OptionsOf{}
	for position, ids := range config.ByPosition(ids) {
		b.Queue(t.SQL(position, OptionsSQL), ids, t.Number()).Query(func(rows pgx.Rows) error {
			var id int64
			var o asyncflow.Options
			_, err := pgx.ForEachRow(rows, []any{&id, &o}, func() error {
				all[id] = o
				o = asyncflow.Options{}
				return nil
			})
			return err
		})
	}
	return all
}

// QueueCreated reads when tasks were submitted; the map is filled with the batch.
func QueueCreated(b *pgx.Batch, t *config.Type, ids []int64) map[int64]time.Time {
	all := map[int64]time.Time{}
	for position, ids := range config.ByPosition(ids) {
		b.Queue(t.SQL(position, CreatedSQL), ids, t.Number()).Query(func(rows pgx.Rows) error {
			var id int64
			var at time.Time
			_, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
				all[id] = at
				return nil
			})
			return err
		})
	}
	return all
}
