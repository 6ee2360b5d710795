package dispatcher_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// children waits until the children of a task are as wanted, and returns the task.
func (f *family) children(
	id asyncflow.TaskID, want func(asyncflow.Children) bool,
) (task store.Task) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		var err error
		task, err = f.Task(f.t.Context(), tenant, id)
		require.NoError(f.t, err)
		return task.Children != nil && want(*task.Children)
	}, patience, 20*time.Millisecond, "%+v", &task)
	return task
}

// gate returns a channel that is closed by open. Before a node can stop, open must be called.
func gate() (closed chan struct{}, open func()) {
	closed = make(chan struct{})
	return closed, sync.OnceFunc(func() { close(closed) })
}

// resting reports whether no child runs or may begin.
func resting(c asyncflow.Children) bool { return c.Running == 0 && c.Pending == 0 }

func (f *family) begun() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, times := range f.first {
		n += times
	}
	return n
}

func TestPauseATree(t *testing.T) {
	begun := make(chan struct{}, 2000)
	end, open := gate()
	f := startFamily(t, asyncflow.FanOut{Shards: 1500}, func(ctx context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		begun <- struct{}{}
		<-end
		return echo(ctx, d)
	})
	t.Cleanup(open)
	id := f.submitOne(`1`)
	<-begun
	task, err := f.PauseTree(t.Context(), tenant, id, "the disk is full")
	require.NoError(t, err)
	assert.Equal(t, "the disk is full", task.Pause.Reason)
	again, err := f.PauseTree(t.Context(), tenant, id, "again")
	require.NoError(t, err)
	assert.Equal(t, task.Pause, again.Pause)
	f.children(id, func(c asyncflow.Children) bool { return c.Pending == 0 })
	open()
	task = f.children(id, resting)
	assert.Equal(t, f.begun(), task.Children.Succeeded, "those that had begun are counted")
	assert.Equal(t, 1500, task.Children.Succeeded+task.Children.Waiting)
	// one that was about to begin may wait for its endpoint first
	require.Eventually(t, func() bool {
		waiting, err := f.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id,
			Status: asyncflow.StatusWaiting, Limit: 1})
		require.NoError(t, err)
		// none: none was made
		return len(waiting) == 0 || waiting[0].WaitsFor == asyncflow.WaitParent
	}, patience, 10*time.Millisecond)
	task, err = f.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Zero(t, task.Pause)
	task = f.ended(id)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.Equal(t, &asyncflow.Children{Total: 1500, Succeeded: 1500}, task.Children)
	assert.Equal(t, 1500, f.begun(), "each once")
	assert.Len(t, f.joined, 1)
}

// Children that become ready during a pause don't begin: those that are retried, redriven or would
// be made after the end of others.
func TestNoChildBeginsWhilePaused(t *testing.T) {
	const parallel = 4
	begun := make(chan struct{}, 100)
	end, open := gate()
	var well atomic.Bool
	f := startFamily(t, asyncflow.FanOut{Shards: 40, MaxParallel: parallel,
		OnChildFailure: asyncflow.ChildFailure{Policy: asyncflow.AllSettled}},
		func(ctx context.Context,
			d asyncflow.Delivery) asyncflow.Outcome {
			begun <- struct{}{}
			<-end
			switch index := d.Lease.Options.Child.Index; {
			case well.Load():
			case index == 0:
				return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500,
					Error: "try again"}
			case index == 1:
				return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 422, Error: "no"}
			}
			return echo(ctx, d)
		})
	t.Cleanup(open)
	id := f.submitOne(`1`)
	for range parallel {
		<-begun
	}
	_, err := f.PauseTree(t.Context(), tenant, id, "")
	require.NoError(t, err)
	open()
	task := f.children(id, func(c asyncflow.Children) bool { return resting(c) && c.Failed == 1 })
	assert.Equal(t, parallel-2, task.Children.Succeeded)
	failed, err := f.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id,
		Status: asyncflow.StatusFailed, Limit: 1})
	require.NoError(t, err)
	_, err = f.Redrive(t.Context(), tenant, failed[0].ID, store.Redrive{})
	require.NoError(t, err)
	f.children(id, func(c asyncflow.Children) bool { return resting(c) && c.Failed == 0 })
	assert.Equal(t, parallel, f.begun())
	waiting, err := f.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id,
		Status: asyncflow.StatusWaiting, Limit: 9})
	require.NoError(t, err)
	assert.Len(t, waiting, 2, "the retry and the redriven one")
	for _, child := range waiting {
		assert.Equal(t, asyncflow.WaitParent, child.WaitsFor)
	}
	well.Store(true)
	_, err = f.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	task = f.ended(id)
	assert.Equal(t, &asyncflow.Children{Total: 40, Succeeded: 40}, task.Children)
	assert.Equal(t, 42, f.begun())
	assert.Len(t, f.joined, 1)
}

// A pause doesn't keep a tree from ending, by a cancel or by a failure. The next run of the tree
// isn't paused.
func TestEndsOfAPausedTree(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, cancel := range map[string]bool{"cancel": true, "failure": false} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{}, 4000)
			end, open := gate()
			var well atomic.Bool
			f := startFamily(t, asyncflow.FanOut{Shards: 1100}, func(ctx context.Context,
				d asyncflow.Delivery) asyncflow.Outcome {
				begun <- struct{}{}
				<-end
				if !well.Load() {
					return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 422,
						Error: "no"}
				}
				return echo(ctx, d)
			})
			t.Cleanup(open)
			id := f.submitOne(`1`)
			<-begun
			_, err := f.PauseTree(t.Context(), tenant, id, "")
			require.NoError(t, err)
			f.children(id, func(c asyncflow.Children) bool { return c.Pending == 0 })
			if cancel {
				_, err = f.Cancel(t.Context(), tenant, id, "")
				require.NoError(t, err)
			}
			open()
			task := f.ended(id)
			assert.NotEqual(t, asyncflow.StatusSucceeded, task.Status)
			assert.Zero(t, task.Pause)
			_, err = f.ResumeTree(t.Context(), tenant, id)
			assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "it is final")
			f.children(id, func(c asyncflow.Children) bool { return c.Failed+c.Cancelled == 1100 })
			well.Store(true)
			require.Eventually(t, func() bool { // the last of its children may be being cancelled
				_, err := f.Redrive(t.Context(), tenant, id, store.Redrive{})
				return err == nil
			}, patience, 20*time.Millisecond)
			task = f.ended(id)
			assert.Equal(t, asyncflow.StatusSucceeded, task.Status, task.Error)
			assert.Equal(t, &asyncflow.Children{Total: 1100, Succeeded: 1100}, task.Children)
			assert.Len(t, f.joined, 1)
		})
	}
}

// What a node leaves undone of a pause, a background job does.
func TestPauseIsSwept(t *testing.T) {
	begun := make(chan struct{}, 2000)
	end, open := gate()
	f := startFamily(t, asyncflow.FanOut{Shards: 1200}, func(ctx context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		begun <- struct{}{}
		<-end
		return echo(ctx, d)
	})
	t.Cleanup(open)
	id := f.submitOne(`1`)
	<-begun
	require.Eventually(t, func() bool { // all are made
		all, err := f.Tasks(t.Context(), tenant,
			store.Filter{Type: "pipe", Parent: id, Limit: 1200})
		return err == nil && len(all) == 1200
	}, patience, 20*time.Millisecond)
	f.StopFollowUps()
	sweep := func(until func(asyncflow.Children) bool) {
		f.children(id, func(c asyncflow.Children) bool {
			_, _, err := f.SweepFollowUps(t.Context(), tenant)
			require.NoError(t, err)
			return until(c)
		})
	}
	_, err := f.PauseTree(t.Context(), tenant, id, "")
	require.NoError(t, err)
	sweep(func(c asyncflow.Children) bool { return c.Pending == 0 && c.Waiting > 0 })
	open()
	sweep(resting)
	_, err = f.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	sweep(func(c asyncflow.Children) bool { return c.Succeeded == 1200 })
	assert.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
	assert.Equal(t, 1200, f.begun())
}

func TestOnlyTreesArePaused(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Items: "/pages"}, echo)
	final := f.one(`{"pages": [1]}`)
	children, err := f.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Parent: final.ID, Limit: 9})
	require.NoError(t, err)
	unknown := final.ID
	unknown.Number += 1_000_000
	for _, set := range []func(id asyncflow.TaskID) error{
		func(id asyncflow.TaskID) error {
			_, err := f.PauseTree(t.Context(), tenant, id, "")
			return err
		},
		func(id asyncflow.TaskID) error {
			_, err := f.ResumeTree(t.Context(), tenant, id)
			return err
		},
	} {
		err := set(final.ID)
		assert.ErrorContains(t, err, "task "+final.ID.String()+" doesn't wait for children")
		assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
		assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(set(children[0].ID)))
		assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(set(unknown)))
	}
}
