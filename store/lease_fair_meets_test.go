package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A task that comes back into line takes its key's turn, and no other: after a failed attempt, in
// its next stage, and after a redrive.
func TestFairTasksThatComeBack(t *testing.T) { eachSet(t, fairTasksThatComeBack) }

func fairTasksThatComeBack(t *testing.T, b *bundle) {
	redrive := func(l asyncflow.Lease) {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		_, err := b.Redrive(t.Context(), tenant, l.ID, store.Redrive{})
		require.NoError(t, err)
	}
	for name, back := range map[string]func(asyncflow.Lease){
		"retry":      b.endBy(asyncflow.OutcomeFailed),
		"next stage": b.endBy(asyncflow.OutcomeDone),
		"released":   b.endBy(asyncflow.OutcomeReleased),
		"redrive":    redrive,
	} {
		t.Run(name, func(t *testing.T) {
			b.clear()
			b.put(fairStages(nil))
			b.fillKey("big", 200)
			b.submit(keyed("small", "1"))
			var small asyncflow.Lease
			for _, l := range b.fairLease(2) {
				if l.Options.FlowKey == "small" {
					small = l
				}
			}
			require.NotZero(t, small.Seq)
			back(small)
			eventually(t, "the task is due again", func() bool {
				found := served(b.fairLease(2), map[string]int{})
				return found["small"] == 1 && found["big"] == 1
			})
			assert.Equal(t, map[string]int{"big": 2}, served(b.fairLease(2), map[string]int{}))
		})
	}
}

// endBy ends leases with an outcome.
func (b *bundle) endBy(kind asyncflow.OutcomeKind) func(asyncflow.Lease) {
	return func(l asyncflow.Lease) {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: kind})
	}
}

// Cancelled tasks take no turn, and cost no other task its place.
func TestFairCancel(t *testing.T) { eachSet(t, fairCancel) }

func fairCancel(t *testing.T, b *bundle) {
	b.put(fairStages(nil))
	for i := range 3 {
		id := b.submit(keyed(fmt.Sprint("gone-", i), "1"))[0].ID
		_, err := b.Cancel(t.Context(), tenant, id, "")
		require.NoError(t, err)
	}
	b.fillKey("big", 10)
	b.submit(keyed("small", "1"))
	assert.Equal(t, map[string]int{"big": 1, "small": 1},
		served(b.fairLease(2), map[string]int{}))
	b.checkTokens("pipe")
}

// The limit of a type is used by turns.
func TestFairLimitOfTheType(t *testing.T) { eachSet(t, fairLimitOfTheType) }

func fairLimitOfTheType(t *testing.T, b *bundle) {
	spec := fairStages(nil)
	spec.MaxInFlight = 2
	b.put(spec)
	b.fillKeys(1, 4, 20)
	found := map[string]int{}
	for range 4 {
		leases := b.fairLease(100)
		require.Len(t, leases, 2)
		served(leases, found)
		for _, l := range leases {
			b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		}
	}
	assert.Equal(t, map[string]int{"000000": 2, "000001": 2, "000002": 2, "000003": 2}, found)
	b.checkTokens("pipe")
}

// An endpoint is tried with a task that hasn't failed, of whichever key.
func TestFairProbes(t *testing.T) { eachSet(t, fairProbes) }

func fairProbes(t *testing.T, b *bundle) {
	spec := retriedAtOnce()
	spec.Flow = &asyncflow.Flow{Fair: asyncflow.FairKeyFirst}
	b.put(spec)
	for range 5 {
		b.submit(keyed("a", `"bad"`))
	}
	b.fail(5)
	b.submit(keyed("b", `"good"`))
	b.halfOpen()
	b.block()
	require.Equal(t, []string{`"good"`},
		contexts(b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 1}})))
	b.checkTokens("pipe")
}

// The children of a task are without a flow key: all of them together get one turn.
func TestFairChildren(t *testing.T) {
	b := setupFanOut(t)
	spec := fairStages(nil)
	rule := asyncflow.FanOut{Shards: 2}
	spec.Stages[0].FanOut = &rule
	b.put(spec)
	b.submit(keyed("a", `"parent"`))
	leases := b.soon()
	require.Len(t, leases, 1)
	b.spread(leases[0], rule)
	b.followUp()
	var children int
	eventually(t, "both children are in line", func() bool {
		require.NoError(t, b.db.QueryRow(t.Context(), b.at(1, `SELECT count(*) FROM {ready}
			WHERE key = ''`)).Scan(&children))
		return children == 2
	})
	b.submit(keyed("a", `"other"`))
	b.submit(keyed("c", `"other"`))
	found := map[string]int{}
	for _, l := range b.fairLease(3) {
		key := l.Options.FlowKey
		if l.Options.Child != nil {
			key = "child"
		}
		found[key]++
	}
	assert.Equal(t, map[string]int{"a": 1, "c": 1, "child": 1}, found)
}

// If the state of the turns is lost, the turns begin anew: no key is left out.
func TestFairTurnsAreLost(t *testing.T) { eachSet(t, fairTurnsAreLost) }

func fairTurnsAreLost(t *testing.T, b *bundle) {
	b.put(fairStages(map[string]int{"000002": 4}))
	b.fillKeys(1, 4, 100)
	b.fairLease(4)
	b.exec(`DELETE FROM tenant_acme.flow_turns`)
	found := map[string]int{}
	for range 2 {
		served(b.fairLease(7), found)
	}
	assert.Equal(t, map[string]int{"000000": 2, "000001": 2, "000002": 8, "000003": 2}, found)
}
