package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// No child of a cancelled task begins after the answer, on any node, even if nothing follows up on
// the cancel because its node was killed.
func TestNoChildOfACancelledTaskBegins(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	_, err := b.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	other := open(t, b.url, "node-2")
	other.byHand()
	leases, err := other.ParkHalted(t.Context(), other.known(), other.leaseAll(other.known(), 2))
	require.NoError(t, err)
	assert.Empty(t, leases)
	b.followUp()
	assert.Equal(t, &asyncflow.Children{Total: 2, Cancelled: 2},
		b.comesTo(id, asyncflow.StatusCancelled).Children)
	b.checkTokens("pipe")
}

// The transaction that ends one child too many keeps its siblings from beginning, on any node, even
// if nothing follows up on it, or a transaction that does so is under way.
func TestNoSiblingOfAFailedChildBegins(t *testing.T) {
	b := setupFanOut(t)
	other := open(t, b.url, "node-2")
	other.byHand()
	tolerate := func(c asyncflow.ChildFailure) asyncflow.ChildFailure {
		c.Policy = asyncflow.Tolerate
		return c
	}
	for name, c := range map[string]struct {
		policy    asyncflow.ChildFailure
		cancelled bool // the child is, instead of failing
		begins    bool // its sibling does
	}{
		"fail fast":              {},
		"fail fast, a cancel":    {cancelled: true},
		"one too many":           {policy: tolerate(asyncflow.ChildFailure{})},
		"one too many, a cancel": {policy: tolerate(asyncflow.ChildFailure{}), cancelled: true},
		"too large a share":      {policy: tolerate(asyncflow.ChildFailure{Percent: 49})},
		"as many as may":         {policy: tolerate(asyncflow.ChildFailure{Count: 1}), begins: true},
		"the share that may":     {policy: tolerate(asyncflow.ChildFailure{Percent: 50}), begins: true},
		"all settled":            {policy: allSettled, begins: true},
	} {
		t.Run(name, func(t *testing.T) {
			id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: c.policy})
			leases := b.leaseAll(b.known(), 2)
			tx, err := b.db.Begin(t.Context()) // counts earlier ends
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.fan_outs FOR UPDATE`)
			require.NoError(t, err)
			want := asyncflow.Children{Total: 2, Failed: 1, Cancelled: 1}
			if c.cancelled {
				_, err := b.Cancel(t.Context(), tenant, leases[0].ID, "")
				require.NoError(t, err)
				want.Failed, want.Cancelled = 0, 2
			} else {
				b.settle(b.known(), leases[0], badEnd)
			}
			others, err := other.ParkHalted(t.Context(), other.known(), leases[1:])
			require.NoError(t, err)
			require.NoError(t, tx.Rollback(t.Context()))
			if c.begins {
				require.Len(t, others, 1)
				b.settle(b.known(), others[0], goodEnd)
				b.followUp()
				b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd) // the next stage
				return
			}
			require.Empty(t, others)
			b.followUp()
			assert.Equal(t, &want, b.comesTo(id, asyncflow.StatusFailed).Children)
			b.checkTokens("pipe")
		})
	}
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
