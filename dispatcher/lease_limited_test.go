package dispatcher_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// put changes the task type, and waits until all nodes know the change.
func (n *node) put(t *testing.T, change func(*asyncflow.TaskType), others ...*node) {
	t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = slices.Clone(spec.Stages) // the catalog's are read at the same time
	change(&spec)
	stored, _, err := n.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	for _, other := range others {
		require.Eventually(t, func() bool {
			pipe, err := other.Catalog.Type(tenant, "pipe")
			return err == nil && pipe.Version == stored.Version
		}, patience, 20*time.Millisecond)
	}
}

// No more tasks of an endpoint are in flight than its limit, on two nodes together, and finally all
// are done.
func TestMaxInFlightOfAnEndpoint(t *testing.T) {
	b := setup(t)
	b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = 3 WHERE stage = 'first'`)
	var now, most atomic.Int32
	end, open := gate()
	t.Cleanup(open)
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		if d.Lease.Stage == "second" {
			return done
		}
		at := now.Add(1)
		defer now.Add(-1)
		most.Store(max(most.Load(), at))
		<-end
		return done
	}
	one := b.start("a", dispatcher.Config{}, send)
	two := b.start("b", dispatcher.Config{}, send)
	tasks := append(one.submit(t, 100), two.submit(t, 100)...)
	for _, task := range []store.Submitted{tasks[99], tasks[199]} {
		one.waitsFor(t, task.ID, asyncflow.WaitLimit)
	}
	open()
	one.await(t, tasks, asyncflow.StatusSucceeded)
	assert.EqualValues(t, 3, most.Load())
}

// A type begins no more tasks in a time than its rate allows, and so does a flow key.
func TestRates(t *testing.T) {
	b := setup(t)
	// A dispatcher that leases meanwhile would do so without the rate.
	before := b.open(store.Config{Node: "before"})
	for name, change := range map[string]func(*asyncflow.TaskType){
		"type": func(t *asyncflow.TaskType) {
			t.Rate = asyncflow.Rate{Count: 20, Per: time.Second}
		},
		"flow key": func(t *asyncflow.TaskType) {
			t.Rate = asyncflow.Rate{}
			t.Flow = &asyncflow.Flow{
				Limits: asyncflow.Limits{Rate: asyncflow.Rate{Count: 20, Per: time.Second}},
			}
		},
	} {
		before.put(t, change)
		n := b.start(name, dispatcher.Config{},
			func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
				return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200}
			})
		new := make([]asyncflow.NewTask, 30)
		for i := range new {
			new[i] = asyncflow.NewTask{
				Type:    "pipe",
				Context: []byte(`1`),
				Options: asyncflow.Options{FlowKey: "k"},
			}
		}
		start := time.Now()
		tasks := n.Submit(t.Context(), tenant, new)
		n.await(t, tasks, asyncflow.StatusFailed)
		assert.Greater(t, time.Since(start), 27*time.Second/20,
			"%s: two of them at once, the others 20 a second", name)
		n.stop()
	}
}

// A type or endpoint that hangs leaves capacity for others: types of other tenants and of the same
// one, and other endpoints of its own type.
func TestOthersGoOn(t *testing.T) {
	b := setup(t)
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	defer release() // otherwise a failure would wait for the hanging deliveries
	var firsts atomic.Int32
	n := b.start("a", dispatcher.Config{Concurrency: 24},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			switch {
			case d.Lease.ID.Type == "other":
			case d.Lease.Stage == "first":
				firsts.Add(1)
			default:
				<-hang
			}
			return done
		})
	n.addType(t, "other", 8)
	hanging := n.submit(t, 100)
	require.Eventually(t, func() bool {
		return firsts.Load() == 100
	}, patience, 20*time.Millisecond,
		"the stage before goes on")
	n.await(t, n.submitTo(t, "other", 50), asyncflow.StatusSucceeded)
	release()
	n.await(t, hanging, asyncflow.StatusSucceeded)
}

// Six types that begin to hang one after the other, each with more tasks than there are slots on
// the node, don't block a seventh: neither a single task nor many.
func TestAnotherTypeGoesOnBesideManyThatHang(t *testing.T) {
	const slots, types = 128, 6
	b := setup(t)
	hang := make(chan struct{})
	defer close(hang)
	begun := make(chan string, types*slots)
	n := b.start("a", dispatcher.Config{Concurrency: slots},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if d.Lease.ID.Type != "quick" {
				begun <- d.Lease.ID.Type
				<-hang
			}
			return done
		})
	n.addType(t, "quick", 9)
	hanging := map[string]bool{}
	for i := range types {
		name := fmt.Sprint("hanging", i)
		n.addType(t, name, 10+i)
		n.submitTo(t, name, slots)
		for !hanging[name] {
			select {
			case other := <-begun:
				hanging[other] = true
			case <-time.After(patience):
				require.Fail(t, "a type never had its turn", "%s, beside %v", name, hanging)
			}
		}
	}
	require.Eventually(t, func() bool { return n.InFlight() >= slots*4/5 }, patience,
		20*time.Millisecond, "they have what they can have")
	for range 10 {
		n.await(t, n.submitTo(t, "quick", 1), asyncflow.StatusSucceeded)
	}
	n.await(t, n.submitTo(t, "quick", 500), asyncflow.StatusSucceeded)
	assert.GreaterOrEqual(t, n.InFlight(), slots*4/5, "all of them still hang")
}

// What is asked of a type without limits because others are limited costs no allocation. Not
// parallel, as the allocations of the whole process are counted.
func TestTypesWithoutLimitsAllocateNothing(t *testing.T) {
	b := &bundle{t, pgtest.Database(t, prepare)}
	n := b.open(store.Config{Node: "a"})
	d := dispatcher.New(n.Committer, nil, dispatcher.Config{})
	for i, name := range []string{"free", "limited"} {
		n.addType(t, name, 20+i)
	}
	b.quietly(`UPDATE tenant_acme.endpoints SET max_in_flight = 50 WHERE type = 'limited'`,
		`UPDATE asyncflow.tenants SET version = version + 1`)
	require.NoError(t, n.Catalog.Refresh(t.Context()))
	for _, name := range []string{"free", "limited"} {
		known, err := n.Catalog.Type(tenant, name)
		require.NoError(t, err)
		require.Equal(t, name == "limited", d.AskLimits(known))
		assert.Zero(t, testing.AllocsPerRun(100, func() { d.AskLimits(known) }), name)
	}
}

// Nor does it cost a statement: a lease with limits first looks for tasks in wait that are held
// back, one without limits doesn't.
func TestTypesWithoutLimitsAskNothing(t *testing.T) {
	pgtest.NotOnCitus(t, "Postgres counts what was read where the rows are, on the worker")
	const tasks = 200
	b := setup(t)
	n := b.open(store.Config{Node: "a"})
	for i, name := range []string{"free", "limited"} {
		n.addType(t, name, 20+i)
	}
	b.quietly(`UPDATE tenant_acme.endpoints SET max_in_flight = 50 WHERE type = 'limited'`,
		`UPDATE asyncflow.tenants SET version = version + 1`)
	n.stop()
	// What a node's connections did is in the statistics when they are closed.
	looks := func() int { return b.statistic(`seq_scan + coalesce(idx_scan, 0)`, "wait") }
	looked := map[string]int{}
	for i, name := range []string{"free", "limited"} {
		before := looks()
		submitter := b.open(store.Config{Node: "submitter"}) // which doesn't begin them at once
		submitter.submitTo(t, name, tasks)
		submitter.stop()
		var sent atomic.Int32
		n := b.start(name, dispatcher.Config{Concurrency: 10}, // so it leases often
			func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
				sent.Add(1)
				return rejected
			})
		require.Eventually(t, func() bool { return sent.Load() == tasks && n.InFlight() == 0 },
			patience, 20*time.Millisecond)
		n.stop()
		require.Eventually(t, func() bool {
			return b.statistic(`n_tup_del`, "lease") == (i+1)*tasks
		},
			patience, 20*time.Millisecond)
		looked[name] = looks() - before
	}
	t.Log(looked)
	assert.Less(t, 3*looked["free"], looked["limited"],
		"only as a node begins it looks at all types")
}

// statistic returns what the statistics of the database say about a table.
func (b *bundle) statistic(what, table string) (n int) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	require.NoError(
		b.t,
		conn.QueryRow(b.t.Context(), `SELECT `+what+` FROM pg_stat_user_tables
			WHERE schemaname = 'tenant_acme' AND relname = $1`, table).
			Scan(&n),
	)
	return n
}

// addType adds a task type of one stage, with an endpoint of the number.
func (n *node) addType(t *testing.T, name string, number int) {
	t.Helper()
	_, _, err := n.PutTaskType(t.Context(), tenant,
		asyncflow.TaskType{Name: name, Stages: []asyncflow.Stage{{Name: "only"}}}.WithDefaults())
	require.NoError(t, err)
	_, err = n.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{
		ID:     fmt.Sprintf("0190a6f0-0000-7000-8000-%012d", number),
		Type:   name,
		Stage:  "only",
		URL:    "http://worker/" + name,
		Weight: 1,
	})
	require.NoError(t, err)
}

func (n *node) submitTo(t *testing.T, name string, count int) []store.Submitted {
	t.Helper()
	tasks := make([]asyncflow.NewTask, count)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: name, Context: fmt.Append(nil, i)}
	}
	results := n.Submit(t.Context(), tenant, tasks)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
	return results
}

// A full node goes on as soon as there is capacity. If it only checked now and then, each task
// would take a second.
func TestFullNodeGoesOn(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{Concurrency: 1},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	start := time.Now()
	n.await(t, n.submit(t, 100), asyncflow.StatusSucceeded)
	t.Log(time.Since(start))
	assert.Less(t, time.Since(start), 50*time.Second)
}

// The tasks of an ordered flow key go one by one through the dispatchers of two nodes, also if the
// first stage is done by children.
func TestOrderedOnTwoNodes(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, rule := range map[string]*asyncflow.FanOut{"alone": nil, "children": {Shards: 3}} {
		t.Run(name, func(t *testing.T) { orderedOnTwoNodes(t, rule) })
	}
}

func orderedOnTwoNodes(t *testing.T, rule *asyncflow.FanOut) {
	b := setup(t)
	var mu sync.Mutex
	var begun []int64
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		mu.Lock()
		defer mu.Unlock()
		id := d.Lease.ID.Number
		if child := d.Lease.Options.Child; child != nil {
			id = child.Parent
		}
		if n := len(begun); n == 0 || begun[n-1] != id {
			begun = append(begun, id)
		}
		return done
	}
	one := b.start("a", dispatcher.Config{}, send)
	two := b.start("b", dispatcher.Config{}, send)
	one.put(t, func(t *asyncflow.TaskType) {
		t.Flow, t.Stages[0].FanOut = &asyncflow.Flow{Ordered: true}, rule
	}, two)
	one.Pause(t, "pipe") // until all are there
	require.Eventually(t, func() bool {
		pipe, err := two.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Paused()
	}, patience, 20*time.Millisecond)
	var tasks []store.Submitted
	for i := range 40 {
		node := []*node{one, two}[i%2]
		tasks = append(
			tasks,
			node.Submit(t.Context(), tenant, []asyncflow.NewTask{
				{Type: "pipe", Context: []byte(`1`), Options: asyncflow.Options{FlowKey: "k"}},
			})...)
	}
	_, err := two.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	one.await(t, tasks, asyncflow.StatusSucceeded)
	mu.Lock()
	defer mu.Unlock()
	var order []int64
	slices.SortFunc(tasks, func(a, b store.Submitted) int {
		return cmp.Or(cmp.Compare(a.OrderTime.UnixMicro(), b.OrderTime.UnixMicro()),
			cmp.Compare(a.ID.Number, b.ID.Number))
	})
	for _, task := range tasks {
		order = append(order, task.ID.Number)
	}
	assert.Equal(t, order, begun, "one at a time, and in order")
}

// The quotas of a tenant hold for all of its types together.
func TestTenantQuotas(t *testing.T) {
	b := setup(t)
	b.exec(`UPDATE asyncflow.tenants SET quotas = '{"concurrency": 3, "deliveries_per_second": 100}'`)
	var now, most atomic.Int32
	end, open := gate()
	t.Cleanup(open)
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			at := now.Add(1)
			defer now.Add(-1)
			most.Store(max(most.Load(), at))
			<-end
			return done
		})
	start := time.Now()
	tasks := n.submit(t, 60)
	require.Eventually(t, func() bool { return now.Load() >= 3 }, patience, 20*time.Millisecond)
	open()
	n.await(t, tasks, asyncflow.StatusSucceeded)
	assert.LessOrEqual(t, most.Load(), int32(3))
	assert.Greater(t, time.Since(start), 1050*time.Millisecond,
		"120 deliveries, of which 10 may come at once")
}
