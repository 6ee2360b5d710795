package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Ready tasks of a sealed roll move to the open one, those of a type that left to its own tables.
// They keep their places, and the roll is drained.
func TestEmptyRoll(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	moves := twoStages()
	moves.Name = "moves"
	_, _, err := b.PutTaskType(t.Context(), tenant, moves)
	require.NoError(t, err)
	urgent := newTask(`"urgent"`)
	urgent.Options.Priority = asyncflow.Priority{3600}
	b.submit(newTask(`"first"`), urgent)
	other := newTask(`"other"`)
	other.Type = "moves"
	b.submit(other)
	known, err := b.Catalog.Type(tenant, "moves")
	require.NoError(t, err)
	moved, err := b.OwnSet(t.Context(), known)
	require.NoError(t, err)
	require.True(t, moved)
	pipe := b.roll()
	b.submit(newTask(`"later"`))

	drained, err := b.DrainRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.False(t, drained, "nobody has leased its tasks")
	n, err := b.EmptyRoll(t.Context(), pipe.Set(), pipe.Begin)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	drained, err = b.DrainRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.True(t, drained)

	var order []string
	for _, name := range []string{"pipe", "moves"} {
		known, err := b.Catalog.Type(tenant, name)
		require.NoError(t, err)
		for _, l := range b.lease(known, 10) {
			order = append(order, string(l.Context))
		}
	}
	require.Equal(t, []string{`"urgent"`, `"first"`, `"later"`, `"other"`}, order)
	b.checkTokens("pipe")
}
