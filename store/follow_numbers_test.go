package store_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A FollowUp that redrives children locks the row of their roll, and so may not wait for numbers
// from there, for the children of other tasks. It needs no second connection, either.
func TestAFollowUpDoesNotWaitForItself(t *testing.T) {
	first := setupFanOut(t)
	s, err := store.Open(t.Context(), store.Config{URL: first.url, Node: "node-2", Notify: true,
		Pool: 1, HotPool: 1, NoRoles: pgtest.NoRoles(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	b := keepRunning(t, s, first.url)
	b.byHand()
	failed := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(badEnd, badEnd)
	b.followUp()
	require.Equal(t, asyncflow.StatusFailed, b.task(failed).Status)
	b.submit(newTask(`{"items":[1,2]}`), newTask(`{"items":[1,2]}`))
	for _, l := range b.leaseAll(b.known(), 2) {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
			FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})
	}
	_, err = b.Redrive(t.Context(), tenant, failed, store.Redrive{})
	require.NoError(t, err)
	assert.Equal(t, 3, b.count(`SELECT count(*) FROM tenant_acme.outbox WHERE due <= now()`))
	b.ForgetNumbers()

	work := b.BeginFollowUp(t.Context(), tenant, store.FollowUpRows)
	defer work.Rollback()
	began := 0
	for _, of := range work.MayBegin() {
		began += len(of.New)
	}
	_, err = work.Commit()
	require.NoError(t, err)
	assert.Equal(t, 4, began, "children are made in the same transaction")
	b.followUp()
	assert.Len(t, b.leaseAll(b.known(), 6), 6, "two are redriven")
	b.checkTokens("pipe")
}
