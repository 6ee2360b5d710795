package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// All nodes learn of a transaction that commits long after it submitted. Its tasks are leased at
// once, although others with later order_times were leased meanwhile and leases begin at a mark
// far above.
func TestSQLSubmitCommittedLate(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	woken := make(chan time.Time, 10000)
	far := openWith(t, b.url, "node-2", func(s *store.Store) {
		listen(t, s, func(_ store.TypeKey, at time.Time) { woken <- at }, func() {})
	})
	pipe := b.put(twoStages())
	app := b.app()
	b.oldSnapshot() // leases are slow
	rows := 0       // hidden by both
	for _, node := range []*bundle{b, far} {
		tx, err := app.Begin(t.Context())
		require.NoError(t, err)
		late, err := b.bySQL(tx, `'pipe', '"late"'`)
		require.NoError(t, err)
		submitted := b.Clock.Now()
		others := 0
		eventually(t, "others are leased, 2 s after it was submitted", func() bool {
			id := node.submit(newTask(`"other"`))[0].ID
			for _, l := range node.lease(pipe, 10) {
				assert.NotEqual(t, late, l.ID, "it isn't committed")
				if l.ID == id {
					others++
				}
			}
			return others > 5 && b.Clock.Now().After(submitted.Add(2*time.Second))
		})
		// Once a second a lease reads everything, and finds what is hidden; the next one doesn't.
		eventually(t, "there is a mark", func() bool {
			rows++
			hidden, _ := b.hide(rows)
			return !slices.ContainsFunc(node.lease(pipe, 10), func(l asyncflow.Lease) bool {
				return l.ID.Number == hidden
			})
		})

		require.NoError(t, tx.Commit(t.Context()))
		told := b.task(late).OrderTime.Truncate(time.Second)
		for !receive(t, woken).Equal(told) { // announcements of the others
		}
		var got []asyncflow.TaskID
		for _, l := range far.lease(pipe, 10) {
			got = append(got, l.ID)
		}
		assert.Contains(t, got, late)
	}
}
