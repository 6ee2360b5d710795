package hot

import (
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
