package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// fairDone leases n tasks of a fair type, rejects them, and returns how many each key had.
func (b *bundle) fairDone(n int) map[string]int {
	b.t.Helper()
	leases := b.fairLease(n)
	for _, l := range leases {
		b.endBy(asyncflow.OutcomeRejected)(l)
	}
	return served(leases, map[string]int{})
}

// Each key starts as many tasks as its own limit allows, by turns. A key that is at its limit costs
// the others nothing, and each end of one of its tasks brings the next one into line.
func TestFairMaxInFlightOfKeys(t *testing.T) { eachSet(t, fairMaxInFlightOfKeys) }

func fairMaxInFlightOfKeys(t *testing.T, b *bundle) {
	spec := fairStages(map[string]int{"heavy": 5})
	spec.Flow.MaxInFlight = 2
	b.put(spec)
	b.fillKey("heavy", 30)
	b.fillKey("light", 30)
	b.submit(newTask("1"), newTask("2"), newTask("3"))
	var leases []asyncflow.Lease
	found := map[string]int{}
	for range 4 {
		some := b.fairLease(20)
		leases = append(leases, some...)
		served(some, found)
	}
	assert.Equal(t, map[string]int{"heavy": 2, "light": 2, "": 3}, found,
		"tasks without a key have no limit")
	for round := range 5 {
		var next []asyncflow.Lease
		for _, l := range leases {
			if l.Options.FlowKey != "" {
				b.endBy(asyncflow.OutcomeRejected)(l)
			}
		}
		clear(found)
		eventually(t, "the keys go on", func() bool {
			some := b.fairLease(20)
			next = append(next, some...)
			return served(some, found)["heavy"] >= 2 && found["light"] >= 2
		})
		require.Equal(t, map[string]int{"heavy": 2, "light": 2}, found, "round %d", round)
		leases = next
	}
	b.checkTokens("pipe")
}

// A priority passes tasks of the same key, and no other key.
func TestFairPriority(t *testing.T) { eachSet(t, fairPriority) }

func fairPriority(t *testing.T, b *bundle) {
	b.put(fairStages(nil))
	b.fillKey("a", 3)
	b.fillKey("b", 30)
	urgent := keyed("b", `"urgent"`)
	urgent.Options.Priority = asyncflow.Priority{24 * 3600}
	id := b.submit(urgent)[0].ID
	first := b.fairLease(1)
	assert.Equal(t, map[string]int{"a": 1}, served(first, map[string]int{}), "the first turn")
	second := b.fairLease(1)
	require.Len(t, second, 1)
	assert.Equal(t, id, second[0].ID, "the first task of its key")
	assert.Equal(t, map[string]int{"a": 1, "b": 1}, b.fairDone(2))

	// A changed priority counts the same way.
	last := b.submit(keyed("b", `"later"`))[0].ID
	_, err := b.Change(t.Context(), tenant, last,
		asyncflow.Patch{Priority: asyncflow.Priority{24 * 3600}})
	require.NoError(t, err)
	var ids []asyncflow.TaskID
	for _, l := range b.fairLease(2) {
		ids = append(ids, l.ID)
	}
	require.Len(t, ids, 2)
	assert.Contains(t, ids, last)
	b.checkTokens("pipe")
}

// Expired tasks take no turn: their keys cost the others nothing, and a key with expired and live
// tasks keeps its turn.
func TestFairExpiry(t *testing.T) { eachSet(t, fairExpiry) }

func fairExpiry(t *testing.T, b *bundle) {
	b.put(fairStages(nil))
	for i := range 6 {
		late := within(0, time.Hour)
		late.Options.FlowKey = fmt.Sprint("gone-", i%3)
		if i > 3 {
			late.Options.FlowKey = "some"
		}
		b.lapse(b.submit(late)[0].ID, "end_by")
	}
	b.fillKey("big", 50)
	b.submit(keyed("some", "1"))
	b.expireTasks()
	assert.Equal(t, map[string]int{"big": 1, "some": 1}, b.fairDone(2))
	assert.Equal(t, map[string]int{"big": 4}, b.fairDone(4))
	assert.EqualValues(t, 6, b.stats("pipe").Expired)
	b.checkTokens("pipe")
}

// The key of the last turn is erased with its tasks, in the middle of its turn: the ring goes on
// with the next key. Only the name of the key stays, until another one gets a turn.
func TestFairErasure(t *testing.T) { eachSet(t, fairErasure) }

func fairErasure(t *testing.T, b *bundle) {
	b.put(fairStages(map[string]int{"b-erased": 5}))
	b.fillKey("a", 30)
	b.submit(keyed("b-erased", "1"), keyed("b-erased", "2"))
	b.fillKey("c", 30)
	leases := b.fairLease(2) // a, and the first of the five of b-erased
	require.Equal(t, map[string]int{"a": 1, "b-erased": 1}, served(leases, map[string]int{}))
	list, err := b.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", FlowKey: "b-erased", Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, task := range list {
		_, err := b.Cancel(t.Context(), tenant, task.ID, "")
		require.NoError(t, err)
		b.erase(task.ID)
	}
	turn := func() (key string) {
		t.Helper()
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT key FROM tenant_acme.flow_turns`).Scan(&key))
		return key
	}
	assert.Equal(t, "b-erased", turn())
	assert.Equal(t, map[string]int{"c": 1}, b.fairDone(1))
	assert.Equal(t, "c", turn())
	assert.Equal(t, map[string]int{"a": 2, "c": 2}, b.fairDone(4))
	b.checkTokens("pipe")
}

// A key that submits tasks while its stage is without capacity doesn't move the turns: otherwise
// the key behind it would get them all.
func TestFairTurnsWithoutCapacity(t *testing.T) { eachSet(t, fairTurnsWithoutCapacity) }

func fairTurnsWithoutCapacity(t *testing.T, b *bundle) {
	for name, second := range map[string]int{"one stage": 0, "another stage has some": 50} {
		t.Run(name, func(t *testing.T) {
			b.clear()
			b.exec(`DELETE FROM tenant_acme.flow_turns`)
			b.put(fairStages(nil))
			for _, key := range []string{"a", "m", "n"} {
				b.fillKey(key, 20)
			}
			next := func(capacity int) []asyncflow.Lease {
				return b.leaseLimited(50, &doorman{capacities: map[string]int{"first": capacity,
					"second": second}})
			}
			for range 3 { // all are filed under their stage
				require.Empty(t, next(0))
			}
			found := map[string]int{}
			for range 9 {
				b.submit(keyed("m", "1"))
				require.Empty(t, next(0))
				leases := next(1)
				require.Len(t, leases, 1)
				served(leases, found)
			}
			assert.Equal(t, map[string]int{"a": 3, "m": 3, "n": 3}, found)
			b.checkTokens("pipe")
		})
	}
}

// So it is while there is a single free place in another stage, however many tasks the key submits,
// and whichever node leases.
func TestFairTurnsBesideAFreePlace(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			b := setup(t)
			b.put(fairStages(nil))
			all := []*bundle{b}
			if nodes == 2 {
				all = append(all, open(t, b.url, "node-2"))
			}
			for _, key := range []string{"a", "m", "n"} {
				b.fillKey(key, 20)
			}
			leases := 0
			next := func(first, second int) []asyncflow.Lease {
				leases++
				return all[leases%nodes].leaseLimited(50, &doorman{
					capacities: map[string]int{"first": first, "second": second}})
			}
			for range 3 { // all are filed under their stage
				require.Empty(t, next(0, 0))
			}
			found := map[string]int{}
			for i := range 9 {
				for range 1 + i%3*5 {
					b.submit(keyed("m", "1"))
				}
				require.Empty(t, next(0, 1))
				served(next(1, 0), found)
			}
			assert.Equal(t, map[string]int{"a": 3, "m": 3, "n": 3}, found)
			b.checkTokens("pipe")
		})
	}
}

// A key with one task for a stage with a free place starts it within two leases, beside keys with
// very many tasks for a stage without: on one node, and on two.
func TestFairPastAStageWithoutCapacity(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			b := setup(t)
			b.put(fairStages(nil))
			all := []*bundle{b}
			if nodes == 2 {
				all = append(all, open(t, b.url, "node-2"))
			}
			b.fillKey("a", 20_000)
			b.submit(keyed("z", "1"))
			b.exec(b.at(1, `UPDATE {ready} SET seq = 2, stage = 'second'
				WHERE type = {number} AND key = 'z'`))
			found := map[string]int{}
			for i := range 2 {
				served(all[i%nodes].leaseLimited(50, &doorman{
					capacities: map[string]int{"first": 0, "second": 1}}), found)
			}
			assert.Equal(t, map[string]int{"z": 1}, found)
		})
	}
}
