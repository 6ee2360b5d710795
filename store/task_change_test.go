package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
)

func (b *bundle) change(id asyncflow.TaskID, p asyncflow.Patch) {
	b.t.Helper()
	_, err := b.Change(b.t.Context(), tenant, id, p)
	require.NoError(b.t, err)
	b.checkTokens(id.Type)
}

// A task with a new priority is leased before earlier ones, in this stage and in the next one.
func TestChangePriority(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	first, second := b.submit(newTask(`1`))[0].ID, b.submit(newTask(`2`))[0].ID
	b.change(second, asyncflow.Patch{Priority: asyncflow.Priority{60}})
	for _, stage := range []string{"first", "second"} {
		leases := b.lease(pipe, 1)
		require.Equal(t, second, leases[0].ID, stage)
		require.Equal(t, stage, leases[0].Stage)
		require.Equal(t, 1, leases[0].Attempt)
		require.Equal(t, asyncflow.Priority{60}, leases[0].Options.Priority)
		require.Equal(t, `2`, string(leases[0].Context))
		b.settle(pipe, leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	}
	task, err := b.Task(t.Context(), tenant, second)
	require.NoError(t, err)
	require.Equal(t, asyncflow.Priority{60}, task.Options.Priority)
	require.Equal(t, first, b.lease(pipe, 1)[0].ID)
}

// A patch without a change makes no journal row.
func TestChangeNothing(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	task := newTask(`1`)
	task.Options.Priority = asyncflow.Priority{7}
	id := b.submit(task)[0].ID
	for range 2 {
		b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{7}})
	}
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Empty(t, attempts)
}

// A new time moves a task between ready and wait.
func TestChangeTime(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	at := b.Clock.Now().Add(time.Hour).Truncate(time.Microsecond)
	b.change(id, asyncflow.Patch{RunAt: at})
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusWaiting, task.Status)
	require.Equal(t, asyncflow.WaitDelay, task.WaitsFor)
	require.WithinDuration(t, at, task.OrderTime, 0)
	require.Empty(t, b.lease(pipe, 1))

	b.change(id, asyncflow.Patch{RunAt: b.Clock.Now()})
	leases := b.lease(pipe, 1)
	require.Len(t, leases, 1)
	require.Equal(t, []any{"first", 1, 3}, []any{leases[0].Stage, leases[0].Attempt, leases[0].Seq})
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	require.Equal(t, asyncflow.OutcomeChanged, attempts[1].Outcome)
	require.WithinDuration(t, at, *attempts[0].NextTime, 0)
}

// A retry may start before its pause is over; it is the same attempt.
func TestChangeRetry(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].Retry.Interval = asyncflow.Seconds(-600)
	pipe := b.put(spec)
	id := b.submit(newTask(`1`))[0].ID
	b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
	b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{60}})
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, asyncflow.WaitRetry, task.WaitsFor, "its priority is for later stages")
	require.Empty(t, b.lease(pipe, 1))
	b.change(id, asyncflow.Patch{RunAt: b.Clock.Now().Add(-time.Second)})
	require.Equal(t, 2, b.lease(pipe, 1)[0].Attempt)
}

// A task that waits for an endpoint still waits for it, unless it gets a time.
func TestChangeParked(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	l := b.lease(pipe, 1)[0]
	b.conclude(l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased},
		asyncflow.ParkFor(l, asyncflow.WaitEndpoint))
	for _, c := range []struct {
		patch asyncflow.Patch
		want  asyncflow.WaitReason
	}{
		{asyncflow.Patch{Priority: asyncflow.Priority{60}}, asyncflow.WaitEndpoint},
		{asyncflow.Patch{RunAt: b.Clock.Now().Add(time.Hour)}, asyncflow.WaitDelay},
	} {
		b.change(id, c.patch)
		task, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		require.Equal(t, c.want, task.WaitsFor)
	}
}

func TestChangeRefused(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	l := b.lease(pipe, 1)[0]
	patch := asyncflow.Patch{Priority: asyncflow.Priority{60}}
	_, err := b.Change(t.Context(), tenant, id, patch)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "it is running")
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	_, err = b.Change(t.Context(), tenant, id, patch)
	require.ErrorContains(t, err, "it has failed")
	id.Number++
	_, err = b.Change(t.Context(), tenant, id, patch)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// The later one of two concurrent changes starts from the result of the earlier one.
func TestChangesAddUp(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	before, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	for range 20 {
		var wg sync.WaitGroup
		for _, priority := range []int{10, 1000} {
			wg.Go(func() {
				_, err := b.Change(t.Context(), tenant, id,
					asyncflow.Patch{Priority: asyncflow.Priority{priority}})
				assert.NoError(t, err)
			})
		}
		waitAll(t, &wg)
		task, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		head, _ := task.Options.Priority.ForStage(0)
		require.Equal(t, before.OrderTime.Add(-head), task.OrderTime)
	}
}

// A change keeps the previous attempt's error.
func TestChangeKeepsTheError(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].Retry.Interval = asyncflow.Seconds(-600)
	pipe := b.put(spec)
	id := b.submit(newTask(`1`))[0].ID
	b.settle(pipe, b.lease(pipe, 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "a timeout"})
	b.change(id, asyncflow.Patch{RunAt: b.Clock.Now().Add(time.Hour)})
	b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{5}})
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, "a timeout", task.Error)
}

// Changes race with leases and with each other: each task is leased once, and there is always one
// token row of it.
func TestChangesAtOnce(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	pipe := b.put(twoStages())
	const tasks = 40
	var ids []asyncflow.TaskID
	for range tasks {
		ids = append(ids, b.submit(newTask(`1`))[0].ID)
	}
	var wg sync.WaitGroup
	for _, id := range ids {
		for n := range 3 {
			wg.Go(func() {
				p := asyncflow.Patch{Priority: asyncflow.Priority{n + 1}}
				if n == 2 {
					p = asyncflow.Patch{RunAt: b.Clock.Now()}
				}
				_, err := b.Change(t.Context(), tenant, id, p)
				if err != nil {
					require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
				}
			})
		}
	}
	leased := map[asyncflow.TaskID]bool{}
	for deadline := time.Now().Add(patience); len(leased) < tasks &&
		time.Now().Before(deadline); {
		for _, l := range b.lease(pipe, 5) {
			require.False(t, leased[l.ID])
			leased[l.ID] = true
		}
	}
	waitAll(t, &wg)
	require.Len(t, leased, tasks)
	b.checkTokens("pipe")
}
