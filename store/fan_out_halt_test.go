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

// failedParent returns a task that failed since all of its children, as many as are given, failed.
func (b *bundle) failedParent(children int) asyncflow.TaskID {
	b.t.Helper()
	parent := b.submit(newTask(`1`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Shards: children},
			Count: children}})
	b.followUp()
	for _, l := range b.leaseAll(b.known(), children) {
		b.settle(b.known(), l, badEnd)
	}
	b.followUp()
	b.comesTo(parent, asyncflow.StatusFailed)
	return parent
}

// A child that fails again while its siblings are still being redriven stops them. What had failed
// before doesn't.
func TestARedriveFailsFast(t *testing.T) {
	b := setupFanOut(t)
	parent := b.failedParent(5)
	b.SetChunks(1000, 1000, 1)
	_, err := b.Redrive(t.Context(), tenant, parent, store.Redrive{})
	require.NoError(t, err)
	for b.count(b.at(1, `SELECT count(*) FROM {ready}`)) < 2 {
		_, err := b.FollowUp(t.Context(), tenant)
		require.NoError(t, err)
	}
	leases := b.leaseAll(b.known(), 2)
	begun, err := b.ParkHalted(t.Context(), b.known(), leases)
	require.NoError(t, err)
	require.Len(t, begun, 2, "what failed before the redrive stops nothing")
	b.settle(b.known(), leases[0], badEnd)
	begun, err = b.ParkHalted(t.Context(), b.known(), leases[1:])
	require.NoError(t, err)
	assert.Empty(t, begun, "its sibling has failed again")
	b.followUp()
	task := b.task(parent)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	assert.Equal(t, &asyncflow.Children{Total: 5, Failed: 4, Cancelled: 1}, task.Children)
	b.checkTokens("pipe")
}

// A node of the version before doesn't write how many children are still to be redriven. Then none
// of the failures counts until the redrive is through with all.
func TestARedriveOfAnOlderNode(t *testing.T) {
	b := setupFanOut(t)
	parent := b.failedParent(3)
	_, err := b.Redrive(t.Context(), tenant, parent, store.Redrive{})
	require.NoError(t, err)
	b.exec(b.at(0, `UPDATE {fan_outs} SET to_redrive = NULL`))
	b.followUp()
	leases := b.leaseAll(b.known(), 3)
	begun, err := b.ParkHalted(t.Context(), b.known(), leases)
	require.NoError(t, err)
	require.Len(t, begun, 3)
	b.exec(b.at(0, `UPDATE {fan_outs} SET again = 0, to_redrive = NULL;
		INSERT INTO {outbox} (kind, due, type, id, fan_out, failed)
		  SELECT 'children', 'infinity', type, id, seq, 1 FROM {fan_outs}`))
	begun, err = b.ParkHalted(t.Context(), b.known(), leases)
	require.NoError(t, err)
	require.Len(t, begun, 3, "a failure that isn't counted yet stops nothing either")
	b.exec(b.at(0, `UPDATE {fan_outs} SET again = NULL; DELETE FROM {outbox} WHERE due = 'infinity'`))
	for _, l := range begun {
		b.settle(b.known(), l, goodEnd)
	}
	b.followUp()
	b.comesTo(parent, asyncflow.StatusPending)
}
