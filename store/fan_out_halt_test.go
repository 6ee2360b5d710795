package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// No child of a cancelled task begins after the answer, even if nothing follows up on the cancel.
func TestNoChildOfACancelledTaskBegins(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	_, err := b.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	leases, err := b.ParkHalted(t.Context(), b.known(), b.leaseAll(b.known(), 2))
	require.NoError(t, err)
	assert.Empty(t, leases)
	b.followUp()
	assert.Equal(t, &asyncflow.Children{Total: 2, Cancelled: 2},
		b.comesTo(id, asyncflow.StatusCancelled).Children)
	b.checkTokens("pipe")
}

// The transaction that fails a child keeps its siblings from beginning, if none may fail.
func TestNoSiblingOfAFailedChildBegins(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	leases := b.leaseAll(b.known(), 2)
	b.settle(b.known(), leases[0], badEnd)
	others, err := b.ParkHalted(t.Context(), b.known(), leases[1:])
	require.NoError(t, err)
	assert.Empty(t, others)
	b.followUp()
	assert.Equal(t, &asyncflow.Children{Total: 2, Failed: 1, Cancelled: 1},
		b.comesTo(id, asyncflow.StatusFailed).Children)
	b.checkTokens("pipe")
}

// Claims don't hand out children of a cancelled task: those that they come to are cancelled.
func TestNoChildOfACancelledTaskIsClaimed(t *testing.T) {
	b := setupFanOut(t)
	spec := b.known().TaskType
	spec.Stages[0].Mode = asyncflow.ModeClaim
	b.put(spec)
	id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	_, err := b.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	ask := &store.ClaimAsk{Claimer: "anna", N: 2}
	_, err = b.LeaseForClaims(t.Context(), b.known(), "first", []*store.ClaimAsk{ask}, 2, 1<<20)
	require.NoError(t, err)
	assert.Empty(t, ask.Leases)
	children, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id,
		Status: asyncflow.StatusCancelled, Limit: 3})
	require.NoError(t, err)
	assert.Len(t, children, 2)
	b.followUp()
	b.comesTo(id, asyncflow.StatusCancelled)
	b.checkTokens("pipe")
}

// A cancel comes to the children that run before those that don't: their workers are to hear of it.
func TestRunningChildrenAreCancelledFirst(t *testing.T) {
	b := setupFanOut(t)
	parent := b.submit(newTask(`1`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Shards: 5}, Count: 5}})
	b.followUp()
	leases := b.leaseAll(b.known(), 5)
	for _, l := range leases[:4] {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500})
	}
	b.SetChunks(1000, 1000, 1)
	_, err := b.Cancel(t.Context(), tenant, parent, "")
	require.NoError(t, err)
	_, err = b.FollowUp(t.Context(), tenant)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusCancelled, b.task(leases[4].ID).Status)
	b.followUp()
	b.checkTokens("pipe")
}
