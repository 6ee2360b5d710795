package hot

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// queueSearch adds the rows by which new tasks of one roll are found, if there are searchable
// fields of the type there. They are inserted after the tasks: Postgres refuses tasks of a sealed
// roll.
func queueSearch(b *pgx.Batch, t *config.Type, items []*Insertion) {
	position := items[0].ID.Position()
	fields := t.Searchable(position)
	if len(fields) == 0 {
		return
	}
	var entries, ids []int64
	for _, item := range items {
		for _, entry := range records.SearchEntries(fields, &item.Options) {
			entries = append(entries, entry)
			ids = append(ids, item.ID.Number)
		}
	}
	if len(entries) > 0 {
		b.Queue(t.SQL(position, records.InsertSearchSQL), entries, ids, t.Number())
	}
}

// insertSearch is queueSearch for the tasks of one roll that were just inserted.
func insertSearch(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion, inserted map[int64]bool,
) error {
	var fresh []*Insertion
	for _, item := range items {
		if inserted[item.ID.Number] {
			fresh = append(fresh, item)
		}
	}
	b := &pgx.Batch{}
	if len(fresh) > 0 {
		queueSearch(b, t, fresh)
	}
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
