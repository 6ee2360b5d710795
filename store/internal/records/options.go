package records

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// ReadOptions sets the options of leases.
func ReadOptions(ctx context.Context, tx pgx.Tx, t *config.Type, leases []asyncflow.Lease) error {
	b := &pgx.Batch{}
	options := QueueOptions(b, t,
		Column(leases, func(l *asyncflow.Lease) int64 { return l.ID.Number }))
	err := tx.SendBatch(ctx, b).Close()
	for i := range leases {
		leases[i].Options = options[leases[i].ID.Number]
	}
	return err
}

// OptionsOf has the options of the tasks with options.
type OptionsOf map[int64]asyncflow.Options

// QueueOptions reads the options of tasks; the map is filled with the batch.
func QueueOptions(b *pgx.Batch, t *config.Type, ids []int64) OptionsOf {
	all := OptionsOf{}
	for position, ids := range config.ByPosition(ids) {
		b.Queue(t.SQL(position, `
			SELECT id, options FROM (SELECT t.id, {options} AS options FROM {task} t
			  WHERE t.type = $2 AND t.id = ANY ($1)) t
			WHERE options IS NOT NULL`), ids, t.Number()).Query(func(rows pgx.Rows) error {
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
