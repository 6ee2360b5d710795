package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A key ends with its task: when the retention was lowered and the task is gone, a repeat makes
// a new task, also by SQL and on a node that doesn't know yet.
func TestKeysEndWithTheirTasks(t *testing.T) { eachSet(t, keysEndWithTheirTasks) }

func keysEndWithTheirTasks(t *testing.T, b *bundle) {
	b.put(twoStages())
	withKey := func(key string) asyncflow.NewTask {
		task := newTask(`1`)
		task.Options.Key = key
		return task
	}
	var gone []asyncflow.TaskID
	for _, r := range b.submit(withKey("a"), withKey("b"), withKey("c")) {
		gone = append(gone, r.ID)
	}
	b.rollAndClear()
	again := b.submit(withKey("a"))[0]
	require.True(t, again.Existing)
	require.Equal(t, asyncflow.StatusFailed, again.Status)
	late := behind(t, b)
	b.idle(true)
	require.True(t, b.drop(b.Clock.Now()))

	for node, results := range map[string]struct {
		*bundle
		key string
	}{"late": {late, "b"}, "this": {b, "a"}} {
		r := results.Submit(t.Context(), tenant,
			[]asyncflow.NewTask{withKey(results.key), withKey(results.key)})
		for i := range r {
			require.NoError(t, r[i].Err, node)
			require.Equal(t, 2, r[i].ID.Position(), node)
		}
		require.Equal(t, r[0].ID, r[1].ID, node)
		require.Equal(t, asyncflow.StatusPending, b.task(r[0].ID).Status, node)
	}
	var id string
	require.NoError(t,
		b.app().QueryRow(t.Context(), `SELECT tenant_acme.submit_task('pipe', '1', 'c')`).Scan(&id))
	require.NotEqual(t, gone[2].String(), id)
	require.NotContains(t, gone, b.submit(withKey("c"))[0].ID)
}
