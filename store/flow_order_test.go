package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// setupFlowTree returns a bundle with a type pipe that has a flow, and makes children in its first
// stage. The parent "first" of the flow key a waits for its two children, "next" is behind it.
func setupFlowTree(
	t *testing.T, flow asyncflow.Flow, rule asyncflow.FanOut,
) (b *bundle, first, next asyncflow.TaskID) {
	t.Helper()
	b = setupFanOut(t)
	spec := twoStages()
	spec.Flow, spec.Stages[0].FanOut = &flow, &rule
	b.put(spec)
	first = b.submit(keyed("a", `{"items":[1,2]}`))[0].ID
	next = b.submit(keyed("a", `"next"`))[0].ID
	leases := b.admitAll()
	require.Len(t, leases, 1)
	b.spread(leases[0], rule)
	return b, first, next
}

// spread makes a leased task wait for two children.
func (b *bundle) spread(l asyncflow.Lease, rule asyncflow.FanOut) {
	b.t.Helper()
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: rule, Count: 2}})
}

// keyBlocked asserts that no other task of the flow key goes on.
func (b *bundle) keyBlocked(next asyncflow.TaskID) {
	b.t.Helper()
	require.NoError(b.t, b.ReleaseKeys(b.t.Context(), b.known(), []string{"a"}))
	n, _, err := b.ReleaseStuck(b.t.Context(), b.known(), "")
	require.NoError(b.t, err)
	require.Zero(b.t, n)
	require.Empty(b.t, b.admitAll())
	require.Equal(b.t, asyncflow.WaitFlow, b.task(next).WaitsFor)
}

var (
	twoItems  = asyncflow.FanOut{Items: "/items"}
	twoShards = asyncflow.FanOut{Shards: 2}
	skips     = asyncflow.Flow{Ordered: true}
	blocks    = asyncflow.Flow{Ordered: true, OnFailure: asyncflow.FlowBlock}
	parks     = asyncflow.Flow{Ordered: true, OnFailure: asyncflow.FlowPark}
	one       = asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 1}}
)

// A task that waits for its children keeps its flow key to itself, in its first stage, too.
func TestFlowOfTasksWithChildren(t *testing.T) {
	t.Parallel()
	for name, flow := range map[string]asyncflow.Flow{
		"ordered": skips, "block": blocks, "park": parks, "in flight": one} {
		for kind, rule := range map[string]asyncflow.FanOut{"items": twoItems,
			"shards": twoShards} {
			t.Run(name+" "+kind, func(t *testing.T) {
				if kind == "shards" && name != "ordered" {
					longform.Costly(t)
				}
				b, first, next := setupFlowTree(t, flow, rule)
				b.keyBlocked(next)
				b.followUp()
				children := b.soon()
				require.Len(t, children, 2)
				b.keyBlocked(next)
				b.settle(b.known(), children[0], goodEnd)
				b.followUp()
				b.keyBlocked(next)
				b.settle(b.known(), children[1], goodEnd)
				b.followUp()
				goesOn := b.soon()
				require.Len(t, goesOn, 1)
				if flow.Ordered {
					require.Equal(t, first, goesOn[0].ID)
					require.Equal(t, "second", goesOn[0].Stage)
				}
				b.nothingBegins()
				b.settle(b.known(), goesOn[0], badEnd)
				if flow.OnFailure == asyncflow.FlowBlock {
					b.keyBlocked(next)
					return
				}
				require.Len(t, b.soon(), 1)
				b.checkTokens("pipe")
			})
		}
	}
}

// nothingBegins asserts that no task goes on.
func (b *bundle) nothingBegins() {
	b.t.Helper()
	require.NoError(b.t, b.ReleaseKeys(b.t.Context(), b.known(), []string{"a"}))
	require.Empty(b.t, b.admitAll())
}

// A key that a task blocks, as one of its children failed, stays blocked while it is redriven.
func TestABlockedKeyOfATaskWithChildren(t *testing.T) {
	b, first, next := setupFlowTree(t, blocks, twoItems)
	b.followUp()
	b.endChildren(goodEnd, badEnd)
	b.followUp()
	b.comesTo(first, asyncflow.StatusFailed)
	b.keyBlocked(next)
	_, err := b.Redrive(t.Context(), tenant, first, store.Redrive{})
	require.NoError(t, err)
	b.keyBlocked(next)
	b.followUp()
	child := b.soon()
	require.Equal(t, []string{"2"}, contexts(child))
	b.keyBlocked(next)
	b.settle(b.known(), child[0], goodEnd)
	b.followUp()
	second := b.soon()
	require.Equal(t, first, second[0].ID)
	b.settle(b.known(), second[0], goodEnd)
	require.Equal(t, next, b.soon()[0].ID)
	b.checkTokens("pipe")
}

// A task that is to have children redriven would be under way at once: not beside another of its
// flow key.
func TestRedriveOfChildrenBesideItsFlowKey(t *testing.T) {
	t.Parallel()
	for name, flow := range map[string]asyncflow.Flow{"ordered": skips, "in flight": one} {
		t.Run(name, func(t *testing.T) {
			b, first, next := setupFlowTree(t, flow, twoItems)
			b.followUp()
			b.endChildren(goodEnd, badEnd)
			b.followUp()
			other := b.soon()
			require.Equal(t, next, other[0].ID)
			_, err := b.Redrive(t.Context(), tenant, first, store.Redrive{})
			require.ErrorContains(t, err, "all_children")
			require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
			b.settle(b.known(), other[0], badEnd)
			_, err = b.Redrive(t.Context(), tenant, first, store.Redrive{})
			require.NoError(t, err)
			third := b.submit(keyed("a", `"third"`))[0].ID
			require.Empty(t, b.admitAll())
			b.keyBlocked(third)
			assert.Equal(t, asyncflow.WaitChildren, b.task(first).WaitsFor)
			b.checkTokens("pipe")
		})
	}
}

// A task that was parked for a retry lets others pass, but a task between two stages does not.
func TestParkedFlowBetweenStages(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Flow = &parks
	b.put(spec)
	b.submit(keyed("a", "0"), keyed("a", "1"))
	b.settle(b.known(), b.admitAll()[0], goodEnd)
	second := b.soon()
	require.Equal(t, []string{"0"}, contexts(second))
	b.settle(b.known(), second[0], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
	require.Equal(t, []string{"1"}, contexts(b.soon()))
	require.Empty(t, b.admitAll())
}

// A task that is redriven from a later stage waits for one that is begun.
func TestRedriveBesideATaskThatHasBegun(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Flow = &skips
	spec.Stages[0].Retry.Interval = asyncflow.Seconds(3600)
	b.put(spec)
	b.submit(keyed("a", "0"), keyed("a", "1"))
	b.settle(b.known(), b.admitAll()[0], goodEnd)
	b.settle(b.known(), b.soon()[0], badEnd)
	b.settle(b.known(), b.soon()[0], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
	_, err := b.Redrive(t.Context(), tenant, b.idOf("0"), store.Redrive{})
	require.NoError(t, err)
	require.Empty(t, b.admitAll(), "the other one waits for a retry")
	_, err = b.Cancel(t.Context(), tenant, b.idOf("1"), "")
	require.NoError(t, err)
	require.Equal(t, []string{"0"}, contexts(b.soon()))
}
