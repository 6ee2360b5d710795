package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// An operation gives all pending and waiting tasks of its filter the time that a change gives to a
// single one, whatever their attempt. It leaves the others alone.
func TestDelayTasks(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		pipe := b.put(longSecond())
		ids := b.places(pipe)
		before := map[string]store.Task{}
		for name, id := range ids {
			before[name] = b.task(id)
		}
		at := b.Clock.Now().Add(3 * time.Hour).Truncate(time.Microsecond)
		_, due := b.start(store.DelayTasks, store.NewOperation{RunAt: at})
		assert.Equal(t, []any{store.OperationDone, int64(6), int64(6), int64(0)},
			figures(b.finish(due)))
		moved := 0
		for name, id := range ids {
			task, was := b.task(id), before[name]
			if was.Status != asyncflow.StatusPending && was.Status != asyncflow.StatusWaiting {
				assert.Equal(t, was, task, name)
				continue
			}
			moved++
			assert.WithinDuration(t, at, task.OrderTime, 0, name)
			assert.Equal(t, []any{asyncflow.StatusWaiting, asyncflow.WaitDelay, was.Stage,
				was.Attempt, was.Error, was.Options}, []any{task.Status, task.WaitsFor, task.Stage,
				task.Attempt, task.Error, task.Options}, name)
		}
		assert.Equal(t, 6, moved)
		b.checkTokens("pipe")
		assert.Empty(t, b.lease(pipe, 10), "nothing is due")

		_, due = b.start(store.DelayTasks, store.NewOperation{RunAt: b.Clock.Now(),
			Filter: store.Filter{Status: asyncflow.StatusWaiting}})
		assert.Equal(t, []any{store.OperationDone, int64(6), int64(6), int64(0)},
			figures(b.finish(due)))
		assert.Len(t, b.lease(pipe, 10), 6, "all of them run at once, retries as well")
		b.checkTokens("pipe")
	})
}

// A task that is due keeps its place when it is to run at once: it isn't put behind later ones.
func TestAtOnceKeepsThePlace(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	first, second := b.submit(newTask(`1`))[0].ID, b.submit(newTask(`2`))[0].ID
	b.change(first, asyncflow.Patch{RunAt: b.Clock.Now()})
	_, due := b.start(store.DelayTasks, store.NewOperation{RunAt: b.Clock.Now()})
	assert.Equal(t, int64(2), b.finish(due).Done)
	assert.Zero(t, b.count(b.at(1, `SELECT count(*) FROM {journal}`)), "nothing is written")
	require.Equal(t, first, b.lease(pipe, 1)[0].ID)
	require.Equal(t, second, b.lease(pipe, 1)[0].ID)
}

// There is no time of its own for a task that waits for its children: an operation skips it, and
// moves its children.
func TestDelaySkipsParents(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{})
	before := b.task(id)
	at := b.Clock.Now().Add(time.Hour)
	_, due := b.start(store.DelayTasks, store.NewOperation{RunAt: at})
	assert.Equal(t, []any{store.OperationDone, int64(3), int64(2), int64(1)},
		figures(b.finish(due)))
	assert.Equal(t, before.OrderTime, b.task(id).OrderTime)
	assert.Empty(t, b.leaseAll(b.known(), 0))
	b.checkTokens("pipe")
}
