package store_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// openAsleep opens a node's store that does nothing by itself.
func openAsleep(t *testing.T, url, node string) *bundle {
	t.Helper()
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{URL: url, Node: node, Pool: 2, HotPool: 2,
			NoRoles: pgtest.NoRoles(), Log: slog.New(slog.DiscardHandler)})
	})
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return &bundle{Store: s, Committer: c, t: t, url: url}
}

// moveUnseen moves the type pipe to a set of its own, and opens the roll of the same number in the
// set that it left. It returns a node that knows of neither.
func (b *bundle) moveUnseen() (old *bundle) {
	b.t.Helper()
	old = openAsleep(b.t, b.url, "node-2")
	require.True(b.t, b.move())
	opened, err := b.OpenRoll(b.t.Context(), b.shared())
	require.NoError(b.t, err)
	require.True(b.t, opened)
	require.Equal(b.t, b.shared().End, b.known().End)
	return old
}

// A settlement by a node that doesn't know yet that a type moved is written where the task is, and
// a repeated one is found there.
func TestASettlementByANodeThatMissedAMove(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	old := b.moveUnseen()
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	require.Greater(t, id.Position(), old.known().End)
	require.False(t, old.settle(old.known(), l, goodEnd).Stale)
	assert.Equal(t, "second", b.task(id).Stage)
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	r := old.settle(old.known(), l, goodEnd)
	assert.False(t, r.Stale)
	assert.Equal(t, asyncflow.OutcomeDone, r.Written)
}
