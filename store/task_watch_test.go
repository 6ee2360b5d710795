package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A follower of a task is notified of every change by this node, at the latest when the change
// is done.
func TestFollow(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	changed, done := b.Follow(tenant, id)
	other, doneToo := b.Follow(tenant, asyncflow.NewTaskID("pipe", 1, 999))
	defer doneToo()
	told := func(what string) {
		t.Helper()
		select {
		case <-changed:
		default:
			t.Fatalf("nothing was told of %s", what)
		}
	}
	l := b.lease(pipe, 1)[0]
	told("the lease")
	_, err := b.SetProgress(t.Context(), pipe, id, l.Seq, store.Progress{Percent: 5})
	require.NoError(t, err)
	told("the progress")
	extended := make(chan bool, 1)
	b.Extend(tenant, l, l.Until.Add(time.Minute), store.Checkpoint{}, store.Seen{},
		func(stands bool, err error) { extended <- stands && err == nil })
	require.True(t, receive(t, extended))
	told("the heartbeat")
	_, err = b.db.Exec(t.Context(), `UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	require.NoError(t, err)
	_, err = b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	told("the rescue")
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	_, taken, err := b.SettleLate(t.Context(), pipe, id, l.Seq, o)
	require.NoError(t, err)
	require.True(t, taken)
	told("the late report")
	l = b.lease(pipe, 1)[0]
	told("the second lease")
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	told("the settlement")
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	told("the redrive")
	_, err = b.Cancel(t.Context(), tenant, id, "enough")
	require.NoError(t, err)
	told("the cancellation")
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	_, err = b.Cancel(t.Context(), tenant, id, "enough")
	require.NoError(t, err)
	told("both of them, once")
	require.Empty(t, changed)
	require.Empty(t, other)
	done()
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	require.Empty(t, changed, "nobody follows the task any more")
}

// Watch returns a task and its journal up to the task's state, without the context.
func TestWatch(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`"a context"`))[0].ID
	task, attempts, _, err := b.Watch(t.Context(), tenant, id, store.AttemptPage{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusPending, task.Status)
	require.Nil(t, task.Context)
	require.Empty(t, attempts)
	b.settle(pipe, b.lease(pipe, 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`"first"`)})
	task, attempts, _, err = b.Watch(t.Context(), tenant, id, store.AttemptPage{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []any{asyncflow.StatusPending, "second"}, []any{task.Status, task.Stage})
	require.Len(t, attempts, 1)
	require.Equal(t, `"first"`, string(attempts[0].Output))
	b.settle(pipe, b.lease(pipe, 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`"second"`)})
	task, attempts, _, err = b.Watch(t.Context(), tenant, id,
		store.AttemptPage{After: 1, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []any{asyncflow.StatusSucceeded, `"second"`},
		[]any{task.Status, string(task.Result)})
	require.Len(t, attempts, 1)
	require.Equal(t, 2, attempts[0].Seq)
	_, attempts, _, err = b.Watch(t.Context(), tenant, id,
		store.AttemptPage{After: 1 << 20, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, attempts)
	for _, unknown := range []asyncflow.TaskID{asyncflow.NewTaskID("pipe", 1, 999),
		asyncflow.NewTaskID("pipe", 9, 1), asyncflow.NewTaskID("nope", 1, 1)} {
		_, _, _, err = b.Watch(t.Context(), tenant, unknown, store.AttemptPage{Limit: 10})
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), unknown)
	}
}
