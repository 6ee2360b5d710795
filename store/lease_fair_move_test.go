package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// movable puts the type pipe, which b.move then moves between the shared set and one of its own.
func (b *bundle) movable(spec asyncflow.TaskType) {
	b.t.Helper()
	b.put(spec)
	if b.own {
		b.own = false
		b.put(spec)
		b.mayJoin()
	}
}

// While tasks of a fair type are in two table sets, its keys take turns over both, on nodes that
// know of the move and on one that doesn't, and each key's tasks begin in order.
func TestFairAcrossAMove(t *testing.T) { eachSet(t, fairAcrossAMove) }

func fairAcrossAMove(t *testing.T, b *bundle) {
	b.movable(fairStages(map[string]int{"000001": 2}))
	b.fillKeys(b.known().End, 2, 40)
	late := behind(t, b)
	served(b.fairLease(1), map[string]int{})
	require.True(t, b.move())
	b.fillKeys(b.known().End, 3, 40)
	found := map[string]int{}
	last := map[string]int64{}
	note := func(leases []asyncflow.Lease) {
		t.Helper()
		for _, l := range leases {
			require.Greater(t, l.ID.Number, last[l.Options.FlowKey])
			last[l.Options.FlowKey] = l.ID.Number
			found[l.Options.FlowKey]++
		}
	}
	for range 6 {
		note(b.fairLease(4))
	}
	assert.Equal(t, map[string]int{"000000": 6, "000001": 12, "000002": 6}, found)
	note(late.fairLease(3))
	for sum := 1 + 24 + 3; sum < 200; {
		leases := b.fairLease(7)
		require.NotEmpty(t, leases)
		sum += len(leases)
		note(leases)
	}
	assert.Equal(t, 200-1, found["000000"]+found["000001"]+found["000002"])
	b.checkTokens("pipe")
}

// Lifetimes and claim rules hold for tasks of a table set that their type left.
func TestLifetimesAndRulesAcrossAMove(t *testing.T) { eachSet(t, lifetimesAndRulesAcrossAMove) }

func lifetimesAndRulesAcrossAMove(t *testing.T, b *bundle) {
	spec := patient()
	spec.Stages = spec.Stages[:1]
	spec.Stages[0].Mode = asyncflow.ModeClaim
	b.movable(spec)
	submit := func(delay time.Duration) asyncflow.TaskID {
		task := within(0, time.Hour)
		task.Options.Claim = notAnna
		task.Delay = asyncflow.NewDuration(delay)
		return b.submit(task)[0].ID
	}
	claimed, ends, delayed := submit(0), submit(0), submit(time.Minute)
	held := b.claimSoon("first", "bob")
	require.Equal(t, claimed, held.ID)
	require.True(t, b.move())
	after := submit(0)
	require.NotEqual(t, ends.Position(), after.Position())
	require.Empty(t, b.claimsOf("first", "anna", 10))
	for _, id := range []asyncflow.TaskID{claimed, ends, delayed} {
		b.lapse(id, "end_by")
	}
	b.expireTasks()
	for _, id := range []asyncflow.TaskID{claimed, ends, delayed} {
		b.expired(id, "ended")
	}
	require.True(t, b.settle(b.known(), held, doneWith(`1`)).Stale)
	require.Equal(t, after, b.claimSoon("first", "bob").ID)
	require.Equal(t, 1, b.lifetimes())
	b.checkTokens("pipe")
	b.checkTallies("pipe")
}
