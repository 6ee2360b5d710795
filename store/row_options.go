package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// readOptions sets the options of leases.
func readOptions(ctx context.Context, tx pgx.Tx, t *Type, leases []asyncflow.Lease) error {
	b := &pgx.Batch{}
	options := queueOptions(b, t,
		column(leases, func(l *asyncflow.Lease) int64 { return l.ID.Number }))
	err := tx.SendBatch(ctx, b).Close()
	for i := range leases {
		leases[i].Options = options[leases[i].ID.Number]
	}
	return err
}

// optionsOf has the options of those tasks that have some.
type optionsOf map[int64]asyncflow.Options

// queueOptions reads the options of tasks; the map is filled with the batch.
func queueOptions(b *pgx.Batch, t *Type, ids []int64) optionsOf {
	all := optionsOf{}
	for position, ids := range byPosition(ids) {
		b.Queue(t.at(position, `
			SELECT id, options FROM (SELECT t.id, {options} AS options FROM {task} t
			  WHERE t.type = $2 AND t.id = ANY ($1)) t
			WHERE options IS NOT NULL`), ids, t.number).Query(func(rows pgx.Rows) error {
			var id int64
			var o asyncflow.Options
			_, err := pgx.ForEachRow(rows, []any{&id, &o}, func() error {
				all[id], o = o, asyncflow.Options{}
				return nil
			})
			return err
		})
	}
	return all
}
