package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// put changes the task type and waits until all nodes know.
func (n *node) put(t *testing.T, change func(*asyncflow.TaskType), others ...*node) {
	t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	change(&spec)
	stored, _, err := n.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	for _, other := range others {
		require.Eventually(t, func() bool {
			pipe, err := other.Catalog.Type(tenant, "pipe")
			return err == nil && pipe.Version == stored.Version
		}, patience, time.Millisecond)
	}
}

// An endpoint has no more tasks at once than its limit, on two nodes together, and all
// are done in the end.
func TestMaxInFlightOfAnEndpoint(t *testing.T) {
	b := setup(t)
	b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = 3 WHERE stage = 'first'`)
	var now, most atomic.Int32
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		if d.Lease.Stage == "second" {
			return done
		}
		at := now.Add(1)
		defer now.Add(-1)
		most.Store(max(most.Load(), at))
		time.Sleep(2 * time.Millisecond) // so that some would be at it at once
		return done
	}
	one := b.start("a", dispatcher.Config{}, send)
	two := b.start("b", dispatcher.Config{}, send)
	tasks := append(one.submit(t, 100), two.submit(t, 100)...)
	one.await(t, tasks, asyncflow.StatusSucceeded)
	assert.EqualValues(t, 3, most.Load())
}

// A type begins no more tasks in a time than its rate, and a flow key than its own.
func TestRates(t *testing.T) {
	b := setup(t)
	for name, change := range map[string]func(*asyncflow.TaskType){
		"type": func(t *asyncflow.TaskType) { t.Rate = asyncflow.Rate{Count: 20, Per: time.Second} },
		"flow key": func(t *asyncflow.TaskType) {
			t.Rate, t.Flow = asyncflow.Rate{}, &asyncflow.Flow{Limits: asyncflow.Limits{Rate: asyncflow.Rate{Count: 20, Per: time.Second}}}
		},
	} {
		var sent atomic.Int32
		n := b.start(name, dispatcher.Config{}, func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			sent.Add(1)
			return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200}
		})
		n.put(t, change)
		new := make([]asyncflow.NewTask, 30)
		for i := range new {
			new[i] = asyncflow.NewTask{Type: "pipe", Context: []byte(`1`), Options: asyncflow.Options{FlowKey: "k"}}
		}
		start := time.Now()
		tasks := n.Submit(t.Context(), tenant, new)
		n.await(t, tasks, asyncflow.StatusFailed)
		assert.Greater(t, time.Since(start), 27*time.Second/20, "%s: two of them at once, the others 20 a second", name)
		n.stop()
	}
}

// Whoever hangs leaves room for others: types of other tenants and of the same one, and
// the other endpoints of its own type.
func TestOthersGoOn(t *testing.T) {
	b := setup(t)
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	defer release() // else a failure would wait for what hangs
	var firsts atomic.Int32
	n := b.start("a", dispatcher.Config{Concurrency: 24}, func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		switch {
		case d.Lease.ID.Type == "other":
		case d.Lease.Stage == "first":
			firsts.Add(1)
		default:
			<-hang
		}
		return done
	})
	_, _, err := n.PutTaskType(t.Context(), tenant, asyncflow.TaskType{Name: "other", Stages: []asyncflow.Stage{{Name: "only"}}}.WithDefaults())
	require.NoError(t, err)
	_, err = n.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{ID: "0190a6f0-0000-7000-8000-000000000008", Type: "other", Stage: "only", URL: "http://worker/other", Weight: 1})
	require.NoError(t, err)
	hanging := n.submit(t, 100)
	require.Eventually(t, func() bool { return firsts.Load() == 100 }, patience, time.Millisecond, "the stage before goes on")
	quick := make([]asyncflow.NewTask, 50)
	for i := range quick {
		quick[i] = asyncflow.NewTask{Type: "other", Context: fmt.Append(nil, i)}
	}
	n.await(t, n.Submit(t.Context(), tenant, quick), asyncflow.StatusSucceeded)
	release()
	n.await(t, hanging, asyncflow.StatusSucceeded)
}

// A node that is full goes on as soon as it is not: it would take a second for each task
// if it only looked again now and then.
func TestFullNodeGoesOn(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{Concurrency: 1}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	start := time.Now()
	n.await(t, n.submit(t, 100), asyncflow.StatusSucceeded)
	t.Log(time.Since(start))
	assert.Less(t, time.Since(start), 50*time.Second)
}

// The tasks of an ordered flow key go one by one through the dispatchers of two nodes.
func TestOrderedOnTwoNodes(t *testing.T) {
	b := setup(t)
	var now atomic.Int32
	var last atomic.Int64
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		assert.EqualValues(t, 1, now.Add(1), "one at a time")
		defer now.Add(-1)
		if d.Lease.Stage == "first" {
			assert.Greater(t, d.Lease.OrderTime.UnixMicro(), last.Swap(d.Lease.OrderTime.UnixMicro()), "in order")
		}
		return done
	}
	one := b.start("a", dispatcher.Config{}, send)
	two := b.start("b", dispatcher.Config{}, send)
	one.put(t, func(t *asyncflow.TaskType) { t.Flow = &asyncflow.Flow{Ordered: true} }, two)
	_, err := one.Pause(t.Context(), tenant, "pipe", "") // until all are there
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pipe, err := two.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Paused()
	}, patience, time.Millisecond)
	var tasks []store.Submitted
	for i := range 40 {
		node := []*node{one, two}[i%2]
		tasks = append(tasks, node.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`), Options: asyncflow.Options{FlowKey: "k"}}})...)
	}
	_, err = two.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	one.await(t, tasks, asyncflow.StatusSucceeded)
}

// The quotas of a tenant hold for all of its types together.
func TestTenantQuotas(t *testing.T) {
	b := setup(t)
	b.exec(`UPDATE asyncflow.tenants SET quotas = '{"concurrency": 3, "deliveries_per_second": 100}'`)
	var now, most atomic.Int32
	n := b.start("a", dispatcher.Config{}, func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		at := now.Add(1)
		defer now.Add(-1)
		most.Store(max(most.Load(), at))
		time.Sleep(5 * time.Millisecond) // so that some would be at it at once
		return done
	})
	start := time.Now()
	n.await(t, n.submit(t, 60), asyncflow.StatusSucceeded)
	assert.LessOrEqual(t, most.Load(), int32(3))
	assert.Greater(t, time.Since(start), 1050*time.Millisecond, "120 deliveries, of which 10 may come at once")
}
