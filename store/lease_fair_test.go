package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// fairStages is twoStages with flow keys that take turns.
func fairStages(weights map[string]int) asyncflow.TaskType {
	pipe := twoStages()
	pipe.Flow = &asyncflow.Flow{Fair: asyncflow.FairKeyFirst, Weights: weights}
	return pipe
}

// fillKeys puts due tasks in line: tasks of each of keys, with n in 6 digits for their names. They
// are ordered by key.
func (b *bundle) fillKeys(position, keys, tasks int) {
	b.t.Helper()
	b.fillKeysAt(position, keys, tasks, "now() - interval '1 h'")
}

func (b *bundle) fillKeysAt(position, keys, tasks int, at string) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), b.at(position, `WITH t AS (
		INSERT INTO {task} (type, id, created_at, order_time, context, options)
		  SELECT {number}, $1::bigint + k * $3::int + n, now(),
		    `+at+` + (k * $3::int + n) * interval '1 us', '1',
		    json_build_object('flow_key', to_char(k, 'FM000000'))
		  FROM generate_series(0, $2::int - 1) k, generate_series(0, $3::int - 1) n
		  RETURNING *)
		INSERT INTO {ready} (type, order_time, id, seq, stage, attempt, key)
		  SELECT type, order_time, id, 1, 'first', 1, options ->> 'flow_key' FROM t`),
		asyncflow.NewTaskID("pipe", position, 1000000).Number, keys, tasks)
	require.NoError(b.t, err)
}

// served counts leases by flow key.
func served(leases []asyncflow.Lease, into map[string]int) map[string]int {
	for _, l := range leases {
		into[l.Options.FlowKey]++
	}
	return into
}

// fairLease leases n tasks of a fair type and ends them.
func (b *bundle) fairLease(n int) []asyncflow.Lease {
	b.t.Helper()
	return b.leaseLimited(n, &doorman{})
}

// A key with one task is served by the next lease, however many tasks there are of another key.
// Tasks without a key share a turn.
func TestFairKeysTakeTurns(t *testing.T) { eachSet(t, fairKeysTakeTurns) }

func fairKeysTakeTurns(t *testing.T, b *bundle) {
	b.put(fairStages(nil))
	b.fillKeys(1, 1, 1000)
	b.submit(keyed("small", "1"), newTask("2"), newTask("3"))
	assert.Equal(t, map[string]int{"000000": 1, "small": 1, "": 1},
		served(b.fairLease(3), map[string]int{}))
	assert.Equal(t, map[string]int{"000000": 2, "": 1}, served(b.fairLease(3), map[string]int{}))
	assert.Equal(t, map[string]int{"000000": 50}, served(b.fairLease(50), map[string]int{}),
		"nothing is left unused")
	b.submit(keyed("z", "1"))
	found := map[string]int{}
	served(b.fairLease(1), found)
	served(b.fairLease(1), found)
	assert.Equal(t, map[string]int{"000000": 1, "z": 1}, found, "two leases of one task each")
	b.checkTokens("pipe")
}

// In its turn, a key starts as many tasks as its weight, in one lease or in several.
func TestFairWeights(t *testing.T) { eachSet(t, fairWeights) }

func fairWeights(t *testing.T, b *bundle) {
	b.put(fairStages(map[string]int{"000001": 5}))
	b.fillKeys(1, 3, 200)
	found := map[string]int{}
	for range 10 {
		served(b.fairLease(7), found)
	}
	assert.Equal(t, map[string]int{"000000": 10, "000001": 50, "000002": 10}, found)
	found = map[string]int{}
	for range 14 {
		served(b.fairLease(3), found)
	}
	assert.Equal(t, map[string]int{"000000": 6, "000001": 30, "000002": 6}, found)
}

// The tasks of a key begin in order.
func TestFairOrderWithinKey(t *testing.T) { eachSet(t, fairOrderWithinKey) }

func fairOrderWithinKey(t *testing.T, b *bundle) {
	b.put(fairStages(map[string]int{"000001": 3}))
	b.fillKeys(1, 3, 40)
	last := map[string]int64{}
	n := 0
	for n < 120 {
		leases := b.fairLease(11)
		require.NotEmpty(t, leases)
		n += len(leases)
		for _, l := range leases {
			require.Greater(t, l.ID.Number, last[l.Options.FlowKey])
			last[l.Options.FlowKey] = l.ID.Number
		}
	}
	b.checkTokens("pipe")
}

// Of 1,000 keys with constant backlog, none is ever served more than a turn ahead of another one,
// on one node and on three.
func TestFairSharesOfManyKeys(t *testing.T) {
	longform.Costly(t)
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			b := setup(t)
			b.put(fairStages(map[string]int{"000500": 4}))
			all := []*bundle{b}
			for i := 1; i < nodes; i++ {
				all = append(all, open(t, b.url, fmt.Sprintf("node-%d", i+1)))
			}
			b.fillKeys(1, 1000, 20)
			found := map[string]int{}
			for i := range 41 {
				served(all[i%nodes].fairLease(90+i%7*10), found)
				sharesAreEven(t, found, 1000)
			}
		})
	}
}

// sharesAreEven checks that each of keys was served for its weight, give or take a turn.
func sharesAreEven(t *testing.T, found map[string]int, keys int) {
	t.Helper()
	least, most := 1<<30, 0
	for i := range keys {
		n := found[fmt.Sprintf("%06d", i)]
		if i == 500 {
			n = (n + 3) / 4
		}
		least, most = min(least, n), max(most, n)
	}
	require.LessOrEqual(t, most-least, 1)
}

// A lease reads about as much with 100,000 keys as with few, and no task is left behind.
func TestFairManyKeys(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(fairStages(nil))
	b.fillKeys(1, 100_000, 1)
	found := map[string]int{}
	for range 20 {
		leases := b.fairLease(200)
		require.Len(t, leases, 200)
		served(leases, found)
	}
	assert.Len(t, found, 4000)
}

// Keys with tasks that are all due later cost no due task its place, nor capacity.
func TestFairKeysThatAreDueLater(t *testing.T) {
	b := setup(t)
	b.put(fairStages(nil))
	b.fillKeysAt(1, 5_000, 1, "now() + interval '1 h'")
	for i := range 300 {
		b.submit(keyed("x"+fmt.Sprint(i%2), "1"))
	}
	require.Len(t, b.fairLease(100), 100)
	found := served(b.fairLease(100), map[string]int{})
	for len(found) > 0 && found["x0"]+found["x1"] < 200 {
		served(b.fairLease(10), found)
	}
	assert.Equal(t, map[string]int{"x0": 100, "x1": 100}, found)
}

// While two ready tables are live, the tasks of a key begin in order, and keys in both take turns.
func TestFairAcrossARoll(t *testing.T) {
	b := setup(t)
	b.put(fairStages(nil))
	b.fillKeys(1, 2, 20)
	b.roll()
	b.fillKeys(2, 3, 20)
	found := map[string]int{}
	last := map[string]int64{}
	for range 4 {
		for _, l := range b.fairLease(9) {
			require.Greater(t, l.ID.Number, last[l.Options.FlowKey])
			last[l.Options.FlowKey] = l.ID.Number
			found[l.Options.FlowKey]++
		}
	}
	assert.Equal(t, map[string]int{"000000": 12, "000001": 12, "000002": 12}, found)
	for left := 64; left > 0; {
		leases := b.fairLease(9)
		require.NotEmpty(t, leases)
		left -= len(leases)
		for _, l := range leases {
			require.Greater(t, l.ID.Number, last[l.Options.FlowKey])
			last[l.Options.FlowKey] = l.ID.Number
		}
	}
	b.checkTokens("pipe")
}

// Tasks that wait for their stage come back in turn.
func TestFairBlockedByStage(t *testing.T) { eachSet(t, fairBlockedByStage) }

func fairBlockedByStage(t *testing.T, b *bundle) {
	b.put(fairStages(nil))
	b.fillKeys(1, 1, 60)
	for range 3 { // all are filed under the stage
		require.Empty(t, b.leaseLimited(20, &doorman{capacities: map[string]int{"first": 0,
			"second": 0}}))
	}
	b.submit(keyed("small", "1"), newTask("2"))
	leases := b.leaseLimited(20, &doorman{capacities: map[string]int{"first": 3, "second": 0}})
	assert.Equal(t, map[string]int{"000000": 1, "small": 1, "": 1},
		served(leases, map[string]int{}))
	b.checkTokens("pipe")
}

// A task says how many keys get their turn before its own, and the stats which keys are largest.
func TestFairTurnIsSeen(t *testing.T) {
	b := setup(t)
	b.put(fairStages(map[string]int{"000001": 3}))
	b.putEndpoint(1)
	b.fillKeys(1, 4, 30)
	none := b.submit(newTask("1"))[0].ID
	before := func(key string, n int) string {
		return fmt.Sprintf("It is the turn of %s; %d keys have theirs before its own.", key, n)
	}
	assert.Equal(t, before(`the flow key "000000"`, 4), b.task(none).Turn)
	some := b.submit(keyed("000001", "1"))[0].ID
	assert.Equal(t, `It is the turn of the flow key "000000"; then it is that of its own.`,
		b.task(some).Turn)
	b.fairLease(3) // one of 000000, and two of 000001, which may start three
	assert.Equal(t, "It is the turn of its flow key.", b.task(some).Turn)
	assert.Equal(t, before(`the flow key "000001"`, 3), b.task(none).Turn)
	b.fairLease(1)
	assert.Equal(t, before(`the flow key "000002"`, 4), b.task(some).Turn)
	b.fairLease(2)
	assert.Equal(t, before("the tasks without a flow key", 2), b.task(some).Turn)

	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.Equal(t, []store.KeyTasks{{FlowKey: "000000", Tasks: 29}, {FlowKey: "000002", Tasks: 29},
		{FlowKey: "000003", Tasks: 29}, {FlowKey: "000001", Tasks: 28}, {FlowKey: "", Tasks: 1}},
		stats[0].LargestKeys)
}

// More keys than are counted get their turn before the last one.
func TestFairTurnOfManyKeys(t *testing.T) {
	b := setup(t)
	b.put(fairStages(nil))
	b.putEndpoint(1)
	b.fillKeys(1, 3000, 1)
	id := b.submit(keyed("z", "1"))[0].ID
	assert.Equal(t, `It is the turn of the flow key "000000"; at least 1000 keys have theirs `+
		"before its own.", b.task(id).Turn)
}

// Tasks without a flow key that SQL submits take turns, too.
func TestFairSubmitSQL(t *testing.T) { eachSet(t, fairSubmitSQL) }

func fairSubmitSQL(t *testing.T, b *bundle) {
	b.put(fairStages(nil))
	b.fillKeys(1, 1, 500)
	for range 2 {
		_, err := b.db.Exec(t.Context(), `SELECT tenant_acme.submit_task('pipe', '1')`)
		require.NoError(t, err)
	}
	assert.Equal(t, map[string]int{"000000": 2, "": 2}, served(b.fairLease(4), map[string]int{}))
}

// A type that becomes fair serves tasks that were in line before.
func TestFairLater(t *testing.T) { eachSet(t, fairLater) }

func fairLater(t *testing.T, b *bundle) {
	b.put(twoStages())
	b.submit(keyed("a", "1"), newTask("2"))
	b.put(fairStages(nil))
	b.submit(keyed("a", "3"))
	require.Len(t, b.fairLease(10), 3)
	b.checkTokens("pipe")
}

// The limits of each key hold, and other keys use what it may not.
func TestFairWithLimits(t *testing.T) { eachSet(t, fairWithLimits) }

func fairWithLimits(t *testing.T, b *bundle) {
	pipe := fairStages(nil)
	pipe.Flow.Ordered = true
	b.put(pipe)
	b.fillKeys(1, 3, 20)
	found := map[string]int{}
	leases := b.fairLease(9)
	served(leases, found)
	assert.Equal(t, map[string]int{"000000": 1, "000001": 1, "000002": 1}, found)
	for range 30 {
		for _, l := range leases {
			b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		}
		leases = b.soon()
	}
	b.checkTokens("pipe")
}
