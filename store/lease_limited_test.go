package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// doorman is an Admission with a given number of tasks for each stage and each flow key.
type doorman struct {
	capacities map[string]int // of stages; others get plenty
	keys       map[string]int // by rate; others get plenty

	endpoint string // that all go to
}

func (d *doorman) Capacity(stage string) int {
	if room, ok := d.capacities[stage]; ok {
		return room
	}
	return 1000
}

func (d *doorman) Admit(stage string) (string, asyncflow.WaitReason) {
	room, ok := d.capacities[stage]
	if ok && room == 0 {
		return "", asyncflow.WaitLimit
	}
	if ok {
		d.capacities[stage]--
	}
	return d.endpoint, ""
}

func (d *doorman) AdmitKey(key string) bool {
	tokens, ok := d.keys[key]
	if ok && tokens == 0 {
		return false
	}
	if ok {
		d.keys[key]--
	}
	return true
}

// leaseLimited leases by a doorman, with the type's current definition.
func (b *bundle) leaseLimited(n int, d *doorman) []asyncflow.Lease {
	b.t.Helper()
	return b.leaseLimitedOf(b.known(), n, d)
}

func (b *bundle) leaseLimitedOf(t *store.Type, n int, d *doorman) []asyncflow.Lease {
	b.t.Helper()
	for {
		g, err := b.LeaseLimited(b.t.Context(), t, n,
			func(store.InFlight) store.Admission { return d })
		require.NoError(b.t, err)
		if !g.Busy {
			return g.Leases
		}
	}
}

func (b *bundle) admitAll() []asyncflow.Lease { return b.leaseLimited(100, &doorman{}) }

// soon leases until there is a lease: its wake-up is on its way.
func (b *bundle) soon() []asyncflow.Lease {
	b.t.Helper()
	var leases []asyncflow.Lease
	eventually(b.t, "a task goes on", func() bool {
		leases = b.admitAll()
		return len(leases) > 0
	})
	return leases
}

func (b *bundle) task(id asyncflow.TaskID) store.Task {
	b.t.Helper()
	task, err := b.Task(b.t.Context(), tenant, id)
	require.NoError(b.t, err)
	return task
}

func keyed(key, context string) asyncflow.NewTask {
	t := newTask(context)
	t.Options.FlowKey = key
	return t
}

func contexts(leases []asyncflow.Lease) (all []string) {
	for _, l := range leases {
		all = append(all, string(l.Context))
	}
	return all
}

// Tasks over a stage's capacity wait filed under the stage, and come back in order as there is
// capacity. Other stages go on meanwhile.
func TestBlockedByStage(t *testing.T) { eachSet(t, blockedByStage) }

func blockedByStage(t *testing.T, b *bundle) {
	b.put(twoStages())
	for i := range 5 {
		b.submit(newTask(fmt.Sprint(i)))
	}
	first := b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 2}})
	require.Equal(t, []string{"0", "1"}, contexts(first))
	list, err := b.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Status: asyncflow.StatusWaiting, Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, task := range list {
		assert.Equal(t, asyncflow.WaitLimit, b.task(task.ID).WaitsFor)
	}
	b.checkTokens("pipe")
	require.Empty(t, b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 0}}))
	b.settle(b.known(), first[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	second := b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 0}})
	require.Equal(t, []string{"0"}, contexts(second), "its second stage")
	require.Equal(t, []string{"2"},
		contexts(b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 1}})))
	require.Equal(t, []string{"3"}, contexts(b.leaseLimited(1, &doorman{})),
		"no more than asked for")
	require.Equal(t, []string{"4"}, contexts(b.leaseLimited(100, &doorman{})))
	b.checkTokens("pipe")
}

// No more tasks of a type are in flight than its limit, on any number of nodes; those that were
// answered with 202 included.
func TestMaxInFlight(t *testing.T) { eachSet(t, maxInFlight) }

func maxInFlight(t *testing.T, b *bundle) {
	far := open(t, b.url, "far")
	spec := twoStages()
	spec.MaxInFlight = 3
	b.put(spec)
	_, err := b.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{
		ID:     "0190a6f0-0000-7000-8000-000000000001",
		Type:   "pipe",
		Stage:  "first",
		URL:    "https://w",
		Weight: 1,
	})
	require.NoError(t, err)
	for i := range 10 {
		b.submit(newTask(fmt.Sprint(i)))
	}
	require.NoError(t, far.Catalog.Refresh(t.Context()))
	var mu sync.Mutex
	var got []asyncflow.Lease
	var wg sync.WaitGroup
	for _, node := range []*bundle{b, far, b, far} {
		wg.Go(func() {
			leases := node.leaseLimited(2, &doorman{})
			mu.Lock()
			defer mu.Unlock()
			got = append(got, leases...)
		})
	}
	waitAll(t, &wg)
	require.Len(t, got, 3)
	extended := make(chan bool, 1)
	b.Extend(tenant, got[0], b.Clock.Now().Add(time.Hour), store.Checkpoint{}, store.Seen{},
		func(stands bool, err error) { extended <- stands && err == nil })
	require.True(t, receive(t, extended))
	require.Empty(t, b.admitAll())
	task, err := b.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Status: asyncflow.StatusPending, Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, asyncflow.WaitType, task[0].WaitsFor)
	assert.Equal(t, asyncflow.WaitType, b.task(task[0].ID).WaitsFor)
	b.settle(b.known(), got[1], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	assert.Equal(t, asyncflow.WaitCapacity, b.task(task[0].ID).WaitsFor, "there is room")
	require.Len(t, b.admitAll(), 1)
}

// No more tasks of a flow key are in flight than its limit. The others wait filed under it, and
// each end of a task releases the next one. Other keys, and tasks without one, are not affected.
func TestFlowKeyLimit(t *testing.T) { eachSet(t, flowKeyLimit) }

func flowKeyLimit(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 2}}
	b.put(spec)
	for i := range 5 {
		b.submit(keyed("a", fmt.Sprintf(`"a%d"`, i)))
	}
	b.submit(keyed("b", `"b"`), newTask(`"none"`))
	got := b.admitAll()
	require.Equal(t, []string{`"a0"`, `"a1"`, `"b"`, `"none"`}, contexts(got))
	list, err := b.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Status: asyncflow.StatusWaiting, Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 3)
	assert.Equal(t, asyncflow.WaitFlow, b.task(list[0].ID).WaitsFor)
	require.Empty(t, b.admitAll())
	b.settle(b.known(), got[2], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.Empty(t, b.admitAll(), "another key's")
	b.settle(b.known(), got[1], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.Equal(t, []string{`"a2"`}, contexts(b.soon()))
	require.Empty(t, b.admitAll())
	_, err = b.Cancel(t.Context(), tenant, got[0].ID, "")
	require.NoError(t, err)
	require.Equal(t, []string{`"a3"`}, contexts(b.soon()), "a cancel makes room too")
	b.checkTokens("pipe")

	spec.Flow = nil // blocked tasks are released
	b.put(spec)
	n, err := b.Promote(t.Context(), b.known(), nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{`"a4"`}, contexts(b.lease(b.known(), 10)))
}

// Each task of one batch comes with its own key, or none.
func TestFlowKeysInABatch(t *testing.T) { eachSet(t, flowKeysInABatch) }

func flowKeysInABatch(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 1}}
	b.put(spec)
	b.submit(newTask(`"none"`), keyed("a", `"a"`), newTask(`"none"`), keyed("b", `"b"`))
	rows, err := b.db.Query(t.Context(), b.at(1, `SELECT t.context || coalesce(' ' || r.key, '')
		FROM {ready} r JOIN {task} t USING (type, id) ORDER BY id`))
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{`"none"`, `"a" a`, `"none"`, `"b" b`}, got)
}

// The rate of a key blocks the rest until the next release.
func TestFlowKeyRate(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{
		Limits: asyncflow.Limits{Rate: asyncflow.Rate{Count: 1, Per: time.Hour}},
	}
	b.put(spec)
	for i := range 3 {
		b.submit(keyed("a", fmt.Sprint(i)))
	}
	require.Equal(t, []string{"0"},
		contexts(b.leaseLimited(10, &doorman{keys: map[string]int{"a": 1}})))
	require.Empty(t, b.admitAll(), "they are held: nobody looks at them")
	more, err := b.ReleaseKey(t.Context(), tenant, "pipe", "a", 1)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, []string{"1"}, contexts(b.admitAll()))
	more, err = b.ReleaseKey(t.Context(), tenant, "pipe", "a", 2)
	require.NoError(t, err)
	require.False(t, more, "there was but one")
}

// The tasks of an ordered key run one at a time through all of their stages.
func TestOrderedFlow(t *testing.T) { eachSet(t, orderedFlow) }

func orderedFlow(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	for i := range 3 {
		b.submit(keyed("a", fmt.Sprint(i)))
	}
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	failed := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}
	one := b.admitAll()
	require.Equal(t, []string{"0"}, contexts(one))
	b.settle(b.known(), one[0], done)
	one = b.admitAll()
	require.Equal(t, []string{"0"}, contexts(one))
	require.Equal(t, "second", one[0].Stage)
	b.settle(b.known(), one[0], failed)
	one = b.soon()
	require.Equal(t, []string{"0"}, contexts(one), "it is tried again: the others wait")
	require.Equal(t, 2, one[0].Attempt)
	_, err := b.Cancel(t.Context(), tenant, one[0].ID, "")
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, contexts(b.soon()), "it was cancelled")
	late := newTask("3")
	late.Options = asyncflow.Options{FlowKey: "a", Priority: asyncflow.Priority{3600}}
	b.submit(late)
	b.settle(b.known(), b.leaseOf("1"), asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.Equal(t, []string{"3"}, contexts(b.soon()),
		"in the order of the tasks, head starts included")
}

// leaseOf returns the standing lease of the task with a context.
func (b *bundle) leaseOf(context string) asyncflow.Lease {
	b.t.Helper()
	var l asyncflow.Lease
	err := b.db.QueryRow(b.t.Context(), b.at(1, `SELECT l.id, l.seq, l.stage, l.attempt
		FROM {lease} l JOIN {task} t USING (type, id) WHERE t.context = $1`),
		context).
		Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt)
	require.NoError(b.t, err)
	l.ID.Type = "pipe"
	l, stands, err := b.LeaseOf(b.t.Context(), tenant, l.ID, l.Seq)
	require.NoError(b.t, err)
	require.True(b.t, stands)
	return l
}

// A failed task of an ordered key blocks or releases the others, by on_failure.
func TestFlowFailure(t *testing.T) {
	t.Parallel()
	rejected, done := asyncflow.Outcome{
		Kind: asyncflow.OutcomeRejected,
	}, asyncflow.Outcome{
		Kind: asyncflow.OutcomeDone,
	}
	begin := func(t *testing.T, mode asyncflow.FlowFailure) (*bundle, asyncflow.Lease) {
		b := setup(t)
		spec := twoStages()
		spec.Stages = spec.Stages[:1]
		spec.Flow = &asyncflow.Flow{Ordered: true, OnFailure: mode}
		b.put(spec)
		for i := range 3 {
			b.submit(keyed("a", fmt.Sprint(i)))
		}
		got := b.admitAll()
		require.Equal(t, []string{"0"}, contexts(got))
		return b, got[0]
	}
	t.Run("skip", func(t *testing.T) {
		b, l := begin(t, asyncflow.FlowSkip)
		b.settle(b.known(), l, rejected)
		require.Equal(t, []string{"1"}, contexts(b.soon()))
	})
	t.Run("block", func(t *testing.T) {
		b, l := begin(t, asyncflow.FlowBlock)
		b.settle(b.known(), l, rejected)
		_, err := b.ReleaseKey(t.Context(), tenant, "pipe", "a", 1)
		require.NoError(t, err)
		n, _, err := b.ReleaseStuck(t.Context(), b.known(), "")
		require.NoError(t, err)
		require.Zero(t, n)
		require.Empty(t, b.admitAll())
		b.submit(keyed("a", "3"))
		require.Empty(t, b.admitAll(), "nor do those go on that come later")
		_, err = b.Redrive(t.Context(), tenant, l.ID, store.Redrive{})
		require.NoError(t, err)
		again := b.admitAll()
		require.Equal(t, []string{"0"}, contexts(again), "but the one that has failed does")
		b.settle(b.known(), again[0], rejected)
		require.Empty(t, b.admitAll())
		n, err = b.UnblockKey(t.Context(), tenant, "pipe", "a")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"1"}, contexts(b.soon()))
		b.settle(b.known(), b.leaseOf("1"), rejected)
		_, err = b.Redrive(t.Context(), tenant, b.idOf("1"), store.Redrive{})
		require.NoError(t, err)
		again = b.admitAll()
		require.Equal(t, []string{"1"}, contexts(again))
		b.settle(b.known(), again[0], done)
		require.Equal(t, []string{"2"}, contexts(b.soon()), "it has succeeded in the end")
	})
	t.Run("park", func(t *testing.T) {
		b, l := begin(t, asyncflow.FlowPark)
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
		require.Equal(t, []string{"1"}, contexts(b.soon()), "it lets the others pass")
		require.Empty(t, b.admitAll(), "one at a time all the same")
	})
}

// idOf returns the id of the task with a context.
func (b *bundle) idOf(context string) asyncflow.TaskID {
	b.t.Helper()
	id := asyncflow.TaskID{Type: "pipe"}
	require.NoError(
		b.t,
		b.db.QueryRow(b.t.Context(),
			b.at(1, `SELECT id FROM {task} WHERE context = $1`), context).
			Scan(&id.Number),
	)
	return id
}

// A release doesn't wait for the lock of a table: it would keep a connection from other tenants.
// The caller learns that it may try again.
func TestReleaseKeysOfALockedTable(t *testing.T) { eachSet(t, releaseKeysOfALockedTable) }

func releaseKeysOfALockedTable(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	b.submit(keyed("a", `1`))
	held := b.submit(keyed("a", `2`))[0].ID
	l := b.admitAll()[0]
	require.Equal(t, asyncflow.WaitFlow, b.task(held).WaitsFor)
	unlock := pgtest.Hold(t, b.url, `LOCK TABLE tenant_acme.wait IN EXCLUSIVE MODE`)
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	err := b.ReleaseKeys(t.Context(), b.known(), []string{"a"})
	require.True(t, store.IsHeld(err), "%v", err)
	unlock()
	require.Equal(t, held, b.soon()[0].ID)
}

// Blocked tasks are released although the announcement of their release was lost.
func TestReleaseStuck(t *testing.T) { eachSet(t, releaseStuck) }

func releaseStuck(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 1}}
	b.put(spec)
	for i := range 30 {
		b.submit(keyed(fmt.Sprint("k", i%10), fmt.Sprint(i)))
	}
	require.Len(t, b.admitAll(), 10)
	n, _, err := b.ReleaseStuck(t.Context(), b.known(), "")
	require.NoError(t, err)
	require.Zero(t, n, "none has room")
	for _, key := range []string{"k3", "k7"} { // as if their ends had been forgotten
		_, err = b.db.Exec(t.Context(), `DELETE FROM tenant_acme.lease WHERE key = $1`, key)
		require.NoError(t, err)
	}
	n, last, err := b.ReleaseStuck(t.Context(), b.known(), "")
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Empty(t, last)
	got := contexts(b.admitAll())
	assert.ElementsMatch(t, []string{"13", "17"}, got)
}

// When a lease runs out, the next task of its key may begin.
func TestRescueReleasesTheNextOfItsKey(t *testing.T) { eachSet(t, rescueReleasesTheNextOfItsKey) }

func rescueReleasesTheNextOfItsKey(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 1}}
	spec.Stages[0].Retry.Interval = asyncflow.Seconds(
		-60) // the lost task comes back after the begin of the other one
	b.put(spec)
	b.submit(keyed("a", "0"), keyed("a", "1"))
	require.Equal(t, []string{"0"}, contexts(b.admitAll()))
	require.Empty(t, b.admitAll())
	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	require.NoError(t, err)
	n, err := b.Rescue(t.Context(), b.known())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"1"}, contexts(b.soon()))
}

// Two nodes lease and settle at random. Two tasks of an ordered key are never in flight, they begin
// in order, and all end.
func TestOrderedFlowOnTwoNodes(t *testing.T) {
	longform.Costly(t)
	eachSet(t, orderedFlowOnTwoNodes)
}

func orderedFlowOnTwoNodes(t *testing.T, b *bundle) {
	far := open(t, b.url, "far")
	spec := twoStages()
	spec.Retry = asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(-0.001)}
	spec.Stages[0].Retry, spec.Stages[1].Retry = spec.Retry, spec.Retry
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	require.NoError(t, far.Catalog.Refresh(t.Context()))
	keys, each := 5, longform.Size(10, 20)
	for i := range each {
		for k := range keys {
			node := b
			if i%3 == 0 {
				node = far
			}
			node.submit(keyed(fmt.Sprint("k", k), fmt.Sprint(i)))
		}
	}
	var mu sync.Mutex
	under, begun := map[string]string{}, map[string][]time.Time{}
	ended := 0
	var wg sync.WaitGroup
	for _, node := range []*bundle{b, far, b, far} {
		wg.Go(func() {
			for t.Context().Err() == nil {
				mu.Lock()
				all := ended == keys*each
				mu.Unlock()
				if all {
					return
				}
				for _, l := range node.leaseLimited(1+rand.IntN(4), &doorman{}) {
					key := l.Options.FlowKey
					mu.Lock()
					if other := under[key]; other != "" {
						assert.Fail(t, "two at once", "%s and %s of %s", other, l.Context, key)
					}
					under[key] = string(l.Context)
					if l.Attempt == 1 && l.Stage == "first" {
						begun[key] = append(begun[key], l.OrderTime)
					}
					mu.Unlock()
					o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
					if rand.IntN(4) == 0 {
						o.Kind = asyncflow.OutcomeFailed
					}
					v := asyncflow.Decide(node.known().TaskType, l, o, node.Clock.Now())
					mu.Lock()
					delete(under, key)
					if v.Final() != "" {
						ended++
					}
					mu.Unlock()
					node.conclude(l, o, v)
				}
			}
		})
	}
	waitAll(t, &wg)
	for key, orders := range begun {
		assert.Len(t, orders, each, key)
		assert.True(t, slices.IsSortedFunc(orders, time.Time.Compare), "%s began in order", key)
	}
	b.checkTokens("pipe")
}

// If two nodes change the health of an endpoint at once, one succeeds.
func TestSetHealth(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	e, err := b.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{
		ID:     "0190a6f0-0000-7000-8000-000000000001",
		Type:   "pipe",
		Stage:  "first",
		URL:    "https://w",
		Weight: 1,
	})
	require.NoError(t, err)
	now := b.Clock.Now()
	open := asyncflow.Health{
		State:  asyncflow.HealthOpen,
		Since:  now,
		Until:  now.Add(5 * time.Second),
		Pause:  5 * time.Second,
		Reason: "down",
	}
	var wg sync.WaitGroup
	sets := make(chan bool, 4)
	for range 4 {
		wg.Go(func() {
			set, err := b.SetHealth(t.Context(), tenant, e.ID, asyncflow.Health{}, open)
			assert.NoError(t, err)
			sets <- set
		})
	}
	waitAll(t, &wg)
	close(sets)
	n := 0
	for set := range sets {
		if set {
			n++
		}
	}
	assert.Equal(t, 1, n)
	stored := b.known().Endpoints("first")[0].Health
	assert.Equal(t, open.Until.UnixMicro(), stored.Until.UnixMicro())
	assert.Equal(t, []any{open.State, open.Pause, open.Reason},
		[]any{stored.State, stored.Pause, stored.Reason})
	assert.True(t, b.known().Limited(now))
	closed := asyncflow.Health{State: asyncflow.HealthClosed, Since: now.Add(time.Second)}
	set, err := b.SetHealth(t.Context(), tenant, e.ID, stored, closed)
	require.NoError(t, err)
	require.True(t, set)
	assert.False(t, b.known().Limited(now.Add(time.Minute)), "ramped up")
	require.NoError(t, b.DeleteEndpoint(t.Context(), tenant, e.ID))
	set, err = b.SetHealth(t.Context(), tenant, e.ID, closed, open)
	require.NoError(t, err)
	assert.False(t, set)
}

// Of a key with a rate, one more task than allowed is released, so that it is refused again:
// otherwise the others would wait for the background job.
func TestReleaseStuckByRate(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{
		Limits: asyncflow.Limits{Rate: asyncflow.Rate{Count: 20, Per: time.Second}},
	}
	b.put(spec)
	for i := range 30 {
		b.submit(keyed("a", fmt.Sprint(i)))
	}
	require.Empty(t, b.leaseLimited(100, &doorman{keys: map[string]int{"a": 0}}))
	n, _, err := b.ReleaseStuck(t.Context(), b.known(), "")
	require.NoError(t, err)
	require.Equal(t, 22, n)
}

// The tasks of one submit share their order_time: their numbers decide.
func TestOrderedBatch(t *testing.T) { eachSet(t, orderedBatch) }

func orderedBatch(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Stages = spec.Stages[:1]
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	var tasks []asyncflow.NewTask
	var want []string
	for i := range 12 {
		tasks, want = append(tasks, keyed("a", fmt.Sprint(i))), append(want, fmt.Sprint(i))
	}
	b.submit(tasks...)
	var got []string
	for len(got) < len(tasks) {
		var leases []asyncflow.Lease
		eventually(t, "one goes on", func() bool {
			leases = b.leaseLimited(4, &doorman{})
			return len(leases) > 0
		})
		require.Len(t, leases, 1)
		got = append(got, string(leases[0].Context))
		b.settle(b.known(), leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	require.Equal(t, want, got)
}

// A blocked key is released when on_failure is changed. A redriven task that its rate postponed
// doesn't block itself.
func TestBlockedKeyGoesOn(t *testing.T) { eachSet(t, blockedKeyGoesOn) }

func blockedKeyGoesOn(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Stages = spec.Stages[:1]
	spec.Flow = &asyncflow.Flow{
		Ordered:   true,
		OnFailure: asyncflow.FlowBlock,
		Limits:    asyncflow.Limits{Rate: asyncflow.Rate{Count: 1, Per: time.Hour}},
	}
	b.put(spec)
	b.submit(keyed("a", "0"), keyed("a", "1"))
	first := b.admitAll()
	require.Equal(t, []string{"0"}, contexts(first))
	b.settle(b.known(), first[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.Empty(t, b.admitAll())
	_, err := b.Redrive(t.Context(), tenant, first[0].ID, store.Redrive{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // once it is due by this node's clock
		require.Empty(t, b.leaseLimited(10, &doorman{keys: map[string]int{"a": 0}}),
			"its rate is used up")
		more, err := b.ReleaseKey(t.Context(), tenant, "pipe", "a", 1)
		require.NoError(t, err)
		return more
	}, patience, 20*time.Millisecond)
	again := b.admitAll()
	require.Equal(t, []string{"0"}, contexts(again), "it, and none of the others")
	b.settle(b.known(), again[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.Empty(t, b.admitAll())
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	n, _, err := b.ReleaseStuck(t.Context(), b.known(), "")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"1"}, contexts(b.admitAll()))
}

// A begun task goes on regardless of the rate of its ordered key, and no task passes it. A
// postponed task is not begun.
func TestOrderedWithRateAndDelay(t *testing.T) { eachSet(t, orderedWithRateAndDelay) }

func orderedWithRateAndDelay(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{
		Ordered: true,
		Limits:  asyncflow.Limits{Rate: asyncflow.Rate{Count: 1, Per: time.Hour}},
	}
	b.put(spec)
	late := keyed("a", `"late"`)
	late.Delay = asyncflow.NewDuration(time.Hour)
	b.submit(late)
	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.wait SET stage = 'renamed'`) // as if the first stage had been another
	require.NoError(t, err)
	b.submit(keyed("a", "0"), keyed("a", "1"))
	first := b.admitAll()
	require.Equal(t, []string{"0"}, contexts(first), "the delayed one keeps nobody")
	b.settle(b.known(), first[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	second := b.leaseLimited(10, &doorman{keys: map[string]int{"a": 0}})
	require.Equal(t, []string{"0"}, contexts(second))
	require.Equal(t, "second", second[0].Stage)
}

// Tasks that were answered with 202 before an endpoint was tried again don't count for
// its health.
func TestLately(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	e, err := b.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{
		ID:     "0190a6f0-0000-7000-8000-000000000001",
		Type:   "pipe",
		Stage:  "first",
		URL:    "https://w",
		Weight: 1,
	})
	require.NoError(t, err)
	b.submit(newTask("1"), newTask("2"))
	require.Len(t, b.leaseLimited(1, &doorman{endpoint: e.ID}), 1)
	now := b.Clock.Now()
	set, err := b.SetHealth(t.Context(), tenant, e.ID, asyncflow.Health{},
		asyncflow.Health{State: asyncflow.HealthOpen, Since: now, Until: now.Add(time.Millisecond)})
	require.NoError(t, err)
	require.True(t, set)
	for want := range 2 {
		eventually(t, "it is half-open", func() bool {
			health := b.known().Endpoints("first")[0].Health
			return health.At(b.Clock.Now()) == asyncflow.HealthHalfOpen
		})
		_, err = b.LeaseLimited(t.Context(), b.known(), 1, func(f store.InFlight) store.Admission {
			assert.Equal(t, []int{want + 1, want}, []int{f.All[e.ID], f.Lately[e.ID]})
			return &doorman{endpoint: e.ID}
		})
		require.NoError(t, err)
	}
}

// When a stage with a backlog gets capacity again, no new task of an ordered flow key overtakes one
// that still waits in the stage's line, behind those of another key.
func TestOrderedBehindABlockedStage(t *testing.T) { eachSet(t, orderedBehindABlockedStage) }

func orderedBehindABlockedStage(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	for _, one := range []string{"a1", "a2", "b1"} {
		b.submit(keyed(one[:1], fmt.Sprintf("%q", one)))
	}
	require.Empty(t, b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 0}}))
	b.submit(keyed("b", `"b2"`))
	require.Equal(t, []string{`"a1"`},
		contexts(b.leaseLimited(2, &doorman{capacities: map[string]int{"first": 2}})))
	require.Equal(t, []string{`"b1"`},
		contexts(b.leaseLimited(2, &doorman{capacities: map[string]int{"first": 2}})))
	b.checkTokens("pipe")
}

// After a stage was renamed there are two lines of it: tasks that were blocked before, and since.
func TestOrderedBehindARenamedStage(t *testing.T) { eachSet(t, orderedBehindARenamedStage) }

func orderedBehindARenamedStage(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	for _, one := range []string{"a1", "a2", "b1"} {
		b.submit(keyed(one[:1], fmt.Sprintf("%q", one)))
	}
	require.Empty(t, b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 0}}))
	spec.Stages[0].Name = "begin"
	spec.StageMapping = map[string]string{"first": "begin"}
	b.put(spec)
	b.submit(keyed("b", `"b2"`))
	require.Empty(t, b.leaseLimited(100, &doorman{capacities: map[string]int{"begin": 0}}))
	two := func() []string {
		return contexts(b.leaseLimited(100, &doorman{capacities: map[string]int{"begin": 2}}))
	}
	require.NotContains(t, two(), `"b2"`)
	require.Equal(t, []string{`"b1"`}, two())
	b.checkTokens("pipe")
}

// A probe is chosen among the tasks in line at random. What is new waits until the probe passes.
func TestOrderedBehindAProbedStage(t *testing.T) { eachSet(t, orderedBehindAProbedStage) }

func orderedBehindAProbedStage(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	e := b.putEndpoint(1)
	for _, one := range []string{"a1", "a2", "b1"} {
		b.submit(keyed(one[:1], fmt.Sprintf("%q", one)))
	}
	require.Empty(t, b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 0}}))
	require.Equal(t, []string{`"a1"`},
		contexts(b.leaseLimited(1, &doorman{capacities: map[string]int{"first": 1}})))
	now := b.Clock.Now()
	set, err := b.SetHealth(b.t.Context(), tenant, e.ID, asyncflow.Health{},
		asyncflow.Health{State: asyncflow.HealthOpen, Since: now.Add(-time.Minute), Until: now})
	require.NoError(b.t, err)
	require.True(b.t, set)
	var got []string
	for len(got) == 0 { // a2 is looked at first, or b1
		b.submit(keyed("b", `"b2"`))
		got = contexts(b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 1}}))
	}
	require.Equal(t, []string{`"b1"`}, got)
	b.checkTokens("pipe")
}
