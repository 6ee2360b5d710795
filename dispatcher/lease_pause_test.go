package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// While a type is paused, running attempts finish, submitted tasks are kept, and no node leases
// any. After the resume all tasks are done.
func TestPause(t *testing.T) {
	b := setup(t)
	arrived, finish := make(chan struct{}, 100), make(chan struct{})
	send := func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		arrived <- struct{}{}
		<-finish
		return done
	}
	one := b.start("a", dispatcher.Config{}, send)
	two := b.start("b", dispatcher.Config{}, send)
	running := one.submit(t, 1)
	<-arrived
	one.Pause(t, "pipe")
	require.Eventually(t, func() bool {
		pipe, err := two.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Paused()
	}, patience, 20*time.Millisecond, "the other node hears of it")
	waiting := append(one.submit(t, 5), two.submit(t, 5)...)
	close(finish)
	require.Eventually(t, func() bool { // its first stage is done, the second one waits
		task, err := one.Task(t.Context(), tenant, running[0].ID)
		return err == nil && task.Status == asyncflow.StatusPending &&
			task.WaitsFor == asyncflow.WaitPaused &&
			task.Stage == "second"
	}, patience, 20*time.Millisecond)
	// every wake-up of the submits is worked off: a paused type is looked at and left
	select {
	case <-arrived:
		require.Fail(t, "something was leased while the type was paused")
	case <-time.After(200 * time.Millisecond):
	}
	_, err := two.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	one.await(t, append(waiting, running...), asyncflow.StatusSucceeded)
}

// After a resume with a ramp a node begins with one task at a time, and gets more over time.
func TestRamp(t *testing.T) {
	b := setup(t)
	var now atomic.Int32
	arrived, finish := make(chan int32, 1000), make(chan struct{})
	n := b.start("a", dispatcher.Config{Concurrency: 200},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			arrived <- now.Add(1)
			<-finish
			now.Add(-1)
			return done
		})
	n.Pause(t, "pipe")
	tasks := n.submit(t, 100)
	const ramp = 100 * time.Second // a task each half second: no clock is that wrong
	begun := time.Now()
	_, err := n.Resume(t.Context(), tenant, "pipe", ramp)
	require.NoError(t, err)
	for range 4 {
		under := <-arrived
		share := float64(time.Since(begun)) / float64(ramp)
		assert.LessOrEqual(t, float64(under), 200*share+1.5,
			"no more than the share of the ramp that has passed, give or take the clock")
	}
	assert.Less(t, time.Since(begun), ramp/2, "but they come")
	close(finish)
	n.await(t, tasks, asyncflow.StatusSucceeded)
}

// pauseDuringALease pauses the type while a lease of it is under way that began before: it
// waits for a lock of the table. It returns when the lease is over.
func (b *bundle) pauseDuringALease(n *node, unlock func()) {
	b.t.Helper()
	b.waitsForLock()
	_, err := n.Store.Pause(b.t.Context(), tenant, "pipe", "")
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeout(b.t.Context(), 50*time.Millisecond)
	defer cancel()
	n.Quiesce(ctx, pipeKey)
	if ctx.Err() == nil { // the machine is so slow that the lease was given up
		require.Zero(b.t, b.waitingForLocks(), "a pause is answered while a lease is under way")
	}
	unlock()
	n.Quiesce(b.t.Context(), pipeKey)
	require.Zero(b.t, n.Leasing(pipeKey))
}

// Once a node answers a pause, it leases nothing: it waited for the lease under way, and gave its
// tasks back unsent.
func TestPauseDuringALease(t *testing.T) {
	t.Parallel()
	for _, table := range []string{ready, lease} {
		t.Run(table, func(t *testing.T) {
			b := setup(t)
			before := b.open(store.Config{Node: "submitter"}).submit(t, 3)
			unlock := b.lock(table)
			n := b.start("a", dispatcher.Config{},
				func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
					assert.Fail(t, "handed out after the pause was answered")
					return done
				})
			b.pauseDuringALease(n, unlock)
			after := n.submit(t, 3)
			for _, r := range after {
				task, err := n.Task(t.Context(), tenant, r.ID)
				require.NoError(t, err)
				require.Equal(t, []any{asyncflow.StatusPending, asyncflow.WaitPaused},
					[]any{task.Status, task.WaitsFor})
			}
			require.Eventually(t, func() bool {
				return n.InFlight() == 0
			}, patience, 20*time.Millisecond)
			for _, r := range append(before, after...) {
				task, err := n.Task(t.Context(), tenant, r.ID)
				require.NoError(t, err)
				require.Equal(t, []any{asyncflow.StatusPending, asyncflow.WaitPaused},
					[]any{task.Status, task.WaitsFor})
			}
			n.stop()
		})
	}
}

// The same holds without an endpoint: the tasks wait for the resume, not for an endpoint.
func TestPauseDuringALeaseWithoutAnEndpoint(t *testing.T) {
	b := setup(t)
	submitter := b.open(store.Config{Node: "submitter"})
	require.NoError(t,
		submitter.DeleteEndpoint(t.Context(), tenant, "0190a6f0-0000-7000-8000-000000000000"))
	tasks := submitter.submit(t, 1)
	unlock := b.lock(lease)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	b.pauseDuringALease(n, unlock)
	require.Eventually(t, func() bool { return n.InFlight() == 0 }, patience, 20*time.Millisecond)
	task, err := n.Task(t.Context(), tenant, tasks[0].ID)
	require.NoError(t, err)
	require.Equal(t, asyncflow.WaitPaused, task.WaitsFor)
}
