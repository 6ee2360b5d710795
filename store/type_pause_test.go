package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ramping := store.PauseState{ResumedAt: at, Ramp: 100 * time.Second}
	for _, c := range []struct {
		state store.PauseState
		after time.Duration
		want  int
	}{
		{store.PauseState{}, 0, 500},
		{store.PauseState{PausedAt: at}, time.Hour, 0},
		{store.PauseState{PausedAt: at, ResumedAt: at, Ramp: time.Hour}, time.Second, 0},
		{store.PauseState{ResumedAt: at}, 0, 500},
		{ramping, 0, 1},
		{ramping, time.Second, 5},
		{ramping, 50 * time.Second, 250},
		{ramping, 99900 * time.Millisecond, 500},
		{ramping, 100 * time.Second, 500},
		{ramping, time.Hour, 500},
	} {
		t.Run(fmt.Sprintf("%+v after %v", c.state, c.after), func(t *testing.T) {
			require.Equal(t, c.want, c.state.Capacity(500, at.Add(c.after)), "%+v after %v",
				c.state, c.after)
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	paused, err := b.Pause(t.Context(), tenant, "pipe", "maintenance")
	require.NoError(t, err)
	require.True(t, paused.Paused())
	again, err := b.Pause(t.Context(), tenant, "pipe", "another reason")
	require.NoError(t, err)
	require.Equal(t, paused.PauseState, again.PauseState, "it keeps its time and reason")
	known, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	require.Equal(t, paused.PauseState, known.PauseState, "this node knows at once")

	id := b.submit(newTask(`1`))[0].ID
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, asyncflow.WaitPaused, task.WaitsFor)

	resumed, err := b.Resume(t.Context(), tenant, "pipe", time.Minute)
	require.NoError(t, err)
	require.False(t, resumed.Paused())
	require.Empty(t, resumed.PauseReason)
	require.WithinDuration(t, b.Clock.Now().Add(time.Minute), resumed.RampUntil(b.Clock.Now()),
		10*time.Second)
	again, err = b.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	require.Equal(t, resumed.PauseState, again.PauseState, "it was not paused")
	require.Equal(t, paused.Version, again.Version, "its version stays")

	for _, err := range []error{
		func() error { _, err := b.Pause(t.Context(), tenant, "nope", ""); return err }(),
		func() error { _, err := b.Resume(t.Context(), tenant, "nope", 0); return err }(),
	} {
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}
}

// Why a task is not running, as far as its type shows.
func TestWaitsFor(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].Retry.Interval = asyncflow.Seconds(-30)
	pipe := b.put(spec)
	waitsFor := func(id asyncflow.TaskID) asyncflow.WaitReason {
		task, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		return task.WaitsFor
	}
	retried := b.submit(newTask(`1`))[0].ID
	require.Equal(t, asyncflow.WaitEndpoint, waitsFor(retried))
	_, err := b.CreateEndpoint(t.Context(), tenant,
		asyncflow.Endpoint{ID: "0198a1b2-0000-7000-8000-000000000001", Type: "pipe", Stage: "first",
			URL: "https://x.example", Weight: 1})
	require.NoError(t, err)
	require.Equal(t, asyncflow.WaitCapacity, waitsFor(retried))
	l := b.lease(pipe, 1)[0]
	require.Empty(t, waitsFor(retried))
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
	require.Equal(t, asyncflow.WaitRetry, waitsFor(retried))
	soon := newTask(`2`)
	soon.Delay = asyncflow.NewDuration(30 * time.Second)
	require.Equal(t, asyncflow.WaitDelay, waitsFor(b.submit(soon)[0].ID))
}
