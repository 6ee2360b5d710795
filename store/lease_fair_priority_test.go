package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// priorityStages is fairStages where priority counts before the turns.
func priorityStages() asyncflow.TaskType {
	pipe := fairStages(nil)
	pipe.Flow.Fair = asyncflow.FairPriorityFirst
	return pipe
}

// raise submits a task with a head start.
func (b *bundle) raise(key string, seconds int) asyncflow.TaskID {
	b.t.Helper()
	task := keyed(key, `"raised"`)
	task.Options.Priority = asyncflow.Priority{seconds}
	return b.submit(task)[0].ID
}

// leasedIDs are the tasks of a lease, in their order.
func leasedIDs(leases []asyncflow.Lease) (ids []asyncflow.TaskID) {
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	return ids
}

const (
	halfAnHour = 30 * 60
	aDay       = 24 * 60 * 60
)

// Tasks with a head start go before the turns, and cost their keys none.
func TestPriorityBeforeTurns(t *testing.T) { eachSet(t, priorityBeforeTurns) }

func priorityBeforeTurns(t *testing.T, b *bundle) {
	b.put(priorityStages())
	for _, key := range []string{"a", "b", "c"} {
		b.fillKey(key, 30)
	}
	require.Equal(t, map[string]int{"a": 1}, served(b.fairLease(1), map[string]int{}))
	second, first := b.raise("a", aDay), b.raise("z", 2*aDay)
	assert.Equal(t, []asyncflow.TaskID{first, second}, leasedIDs(b.fairLease(2)))
	assert.Equal(t, map[string]int{"b": 1, "c": 1}, served(b.fairLease(2), map[string]int{}),
		"the turns go on where they were")

	last := b.raise("", aDay)
	leases := b.fairLease(4)
	assert.Equal(t, last, leases[0].ID)
	assert.Equal(t, map[string]int{"": 1, "a": 1, "b": 1, "c": 1},
		served(leases, map[string]int{}))
	b.checkTokens("pipe")
}

// A head start passes no task of any key that is older, however many younger ones there are: so no
// key waits for longer because others set priorities again and again.
func TestPriorityPassesOnlyWithinHeadStart(t *testing.T) {
	eachSet(t, priorityPassesOnlyWithinHeadStart)
}

func priorityPassesOnlyWithinHeadStart(t *testing.T, b *bundle) {
	b.put(priorityStages())
	b.fillKey("old", 3) // an hour old
	for range 40 {
		b.raise("zz", halfAnHour)
	}
	behind := b.raise("old", halfAnHour)
	assert.Equal(t, map[string]int{"old": 3, "zz": 3}, served(b.fairLease(6), map[string]int{}))
	for range 3 { // now they are the first ones
		leases := b.fairLease(10)
		assert.NotContains(t, leasedIDs(leases), behind)
		assert.Equal(t, map[string]int{"zz": 10}, served(leases, map[string]int{}))
	}
	assert.Equal(t, map[string]int{"zz": 7, "old": 1}, served(b.fairLease(10), map[string]int{}))
	b.checkTokens("pipe")
}

// Tasks that a key's limit blocks are filed, and then hold up neither other head starts nor turns.
// The turn goes past a key at its limit also while leases start tasks with a head start.
func TestPriorityOfKeysAtTheirLimit(t *testing.T) { eachSet(t, priorityOfKeysAtTheirLimit) }

func priorityOfKeysAtTheirLimit(t *testing.T, b *bundle) {
	spec := priorityStages()
	spec.Flow.MaxInFlight = 1
	b.put(spec)
	for range 20 {
		b.raise("raised", 2*aDay)
	}
	require.Len(t, b.fairLease(1), 1)
	for range 3 { // what is left of the key is filed
		require.Empty(t, b.fairLease(10))
	}
	for range 30 {
		b.submit(keyed("a", "1"))
	}
	require.Equal(t, map[string]int{"a": 1}, served(b.fairLease(1), map[string]int{}))
	b.submit(keyed("z", "1"))
	require.Equal(t, map[string]int{"z": 1}, served(b.fairLease(1), map[string]int{}))
	b.submit(keyed("b", "1")) // its turn is after that of a, which is at its limit
	found := map[string]int{}
	for i := range 3 {
		b.raise(fmt.Sprint("raised-", i), aDay)
		served(b.fairLease(2), found)
	}
	assert.Equal(t, map[string]int{"raised-0": 1, "raised-1": 1, "raised-2": 1, "b": 1}, found)
	b.checkTokens("pipe")
}

// Tasks of a stage without capacity don't hide tasks of other stages behind them.
func TestPriorityPastFullStages(t *testing.T) { eachSet(t, priorityPastFullStages) }

func priorityPastFullStages(t *testing.T, b *bundle) {
	spec := priorityStages()
	spec.Stages[1].Priority = 2 * aDay
	b.put(spec)
	b.fillKey("a", 5)
	for range 3 {
		b.raise("full", aDay)
	}
	for _, l := range b.fairLease(3) {
		b.endBy(asyncflow.OutcomeDone)(l) // they go on to the second stage
	}
	id := b.raise("open", aDay)
	leases := b.leaseLimited(20, &doorman{capacities: map[string]int{"first": 1, "second": 0}})
	assert.Equal(t, []asyncflow.TaskID{id}, leasedIDs(leases))
	b.checkTokens("pipe")
}

// Both ready tables count, and tasks that waited for their stage go first when there is capacity
// again.
func TestPriorityOverSources(t *testing.T) { eachSet(t, priorityOverSources) }

func priorityOverSources(t *testing.T, b *bundle) {
	b.put(priorityStages())
	waiting := b.raise("w", halfAnHour)
	require.Empty(t, b.leaseLimited(20, &doorman{capacities: map[string]int{"first": 0,
		"second": 0}}))
	require.Equal(t, asyncflow.StatusWaiting, b.task(waiting).Status)
	old := b.raise("y", 2*halfAnHour)
	b.rollOn()
	b.submit(keyed("a", "1"), keyed("b", "1"))
	young := b.raise("z", halfAnHour-60)
	leases := b.leaseLimited(3, &doorman{capacities: map[string]int{"first": 3, "second": 0}})
	assert.Equal(t, []asyncflow.TaskID{old, waiting, young}, leasedIDs(leases))
	b.checkTokens("pipe")
}

// A task that a worker gave back keeps its place before the turns: it got its own.
func TestPriorityOfGivenBack(t *testing.T) { eachSet(t, priorityOfGivenBack) }

func priorityOfGivenBack(t *testing.T, b *bundle) {
	b.put(priorityStages())
	id := b.raise("z", aDay)
	b.fillKey("a", 30)
	lease := b.fairLease(1)[0]
	require.Equal(t, id, lease.ID)
	b.endBy(asyncflow.OutcomeReleased)(lease)
	assert.Equal(t, []asyncflow.TaskID{id}, leasedIDs(b.fairLease(1)))
	b.checkTokens("pipe")
}

// A task says that it goes before the turns.
func TestPriorityIsSeen(t *testing.T) {
	b := setup(t)
	b.put(priorityStages())
	b.putEndpoint(1)
	b.fillKeys(1, 4, 30)
	assert.Equal(t, "Its head start puts it before the turns of the flow keys.",
		b.task(b.raise("z", aDay)).Turn)
	assert.Equal(t, `It is the turn of the flow key "000000"; 5 keys have theirs before its own.`,
		b.task(b.submit(keyed("zz", "1"))[0].ID).Turn)
}

// While an old snapshot keeps the entries of tasks that were leased, leases don't read these again
// and again to find head starts.
func TestPriorityCostDuringAnOldSnapshot(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(priorityStages())
	b.fillKeys(1, 2, 150_000)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM
		asyncflow.tenants`)
	require.NoError(t, err)
	b.exec(b.at(1, `DELETE FROM {ready} WHERE id % 150000 < 140000`))
	blocks := b.fairCost(30, 10)
	t.Log("blocks of 30 leases:", blocks)
	assert.Less(t, blocks, int64(75_000)) // without what nodes remember 96,000
}
