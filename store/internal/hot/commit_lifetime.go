package hot

import (
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// queueLifetimes adds the rows of new tasks that may expire to a batch.
func queueLifetimes(b *pgx.Batch, t *config.Type, items []*Insertion) {
	var rows []records.LifetimeRow
	for _, item := range items {
		if item.Options.Lifetime == nil && !t.TimesStarts() || !t.HasLifetime(&item.Options) {
			continue
		}
		due := item.Created
		if item.Verdict.OrderTime.After(due) {
			due = item.Verdict.OrderTime
		}
		e := t.Expiry(&item.Options, item.Verdict.Stage, due, true)
		if !e.At.IsZero() {
			rows = append(rows, records.NewLifetime(t, item.ID.Number, e, 0))
		}
	}
	if len(rows) > 0 {
		records.QueueLifetimes(b, t.Set().Tables, rows, items[0].Created)
	}
}
