package dispatcher_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// A reservation ends once: a further use or cancel gives nothing back, and takes nothing.
func TestAReservationEndsOnce(t *testing.T) {
	b := setup(t)
	n := b.open(store.Config{Node: "a"})
	d := dispatcher.New(n.Committer, nil, dispatcher.Config{Concurrency: 10})
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	counts := func(inFlight, leasing, bytes int, what string) {
		t.Helper()
		assert.Equal(t, []int{inFlight, leasing, bytes},
			[]int{d.InFlight(), d.Leasing(pipe.Key()), d.Load()}, what)
	}

	first := d.Reserve(pipe, 5, false)
	require.Equal(t, 5, first.Len())
	counts(5, 5, 0, "reserved")
	first.Use(3, 30)
	counts(3, 3, 30, "two tasks did not come")
	first.Use(3, 30)
	first.Cancel()
	counts(3, 3, 30, "it has ended")

	kept := d.Reserve(pipe, 3, true)
	require.Equal(t, 3, kept.Len())
	counts(3, 6, 30, "the tasks keep what they have")
	kept.Use(1, 10)
	kept.Cancel()
	counts(3, 4, 30, "one goes on")

	second := d.Reserve(pipe, 2, false)
	second.Cancel()
	second.Cancel()
	second.Use(1, 10)
	counts(3, 4, 30, "it was cancelled")

	d.Forgo(pipe, 3, 30)
	counts(0, 1, 0, "none of them begins")
	d.Forgo(pipe, 1, 0)
}
