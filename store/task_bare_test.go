package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// To find where a task is, nothing of its journal is read but the last row: neither its path nor
// the options that a change gave it.
func TestBareTask(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	b.goTo(b.leaseAll(b.known(), 1)[0], to("second", `1`))
	b.exec(b.at(1, `UPDATE {journal} SET options = '{"priority": "not to be read"}'`))
	_, err := b.Task(t.Context(), tenant, id)
	require.Error(t, err)
	task, err := b.BareTask(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, []any{asyncflow.StatusPending, "second", 1, asyncflow.WaitEndpoint},
		[]any{task.Status, task.Stage, task.Attempt, task.WaitsFor})
	status, err := b.TaskStatus(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusPending, status)

	keyed := newTask(`1`)
	keyed.Options.Key = "k"
	keyed.Delay = asyncflow.NewDuration(time.Hour)
	first := b.submit(keyed)[0]
	b.exec(b.at(1, `INSERT INTO {journal}
		(type, id, seq, at, stage, attempt, outcome, next_time, options)
		SELECT type, id, 1, created_at, 'first', 1, 'changed', order_time,
		  '{"priority": "not to be read"}'
		FROM {task} WHERE order_time > now() + interval '1 min'`))
	again := b.Submit(t.Context(), tenant, []asyncflow.NewTask{keyed})[0]
	require.NoError(t, again.Err)
	require.Equal(t, []any{first.ID, true, "first"}, []any{again.ID, again.Existing, again.Stage})
}
