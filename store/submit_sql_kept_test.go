package store_test

import (
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A transaction that submits by SQL keeps the tasks on which the new one depends: a trim of their
// roll waits for it. Afterwards an id is refused, and a key is left to the next task with it.
func TestSQLKeepsTheTasksOfItsDependencies(t *testing.T) {
	for name, on := range map[string]func(asyncflow.TaskID) string{
		"id":  func(id asyncflow.TaskID) string { return `{"task": "` + id.String() + `"}` },
		"key": func(asyncflow.TaskID) string { return `{"type": "pipe", "key": "k"}` },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.put(twoStages())
			needed := b.endedTask("k")
			args := `'pipe', '1', depends_on => '[` + on(needed) + `]'`
			app := b.app()
			tx, err := app.Begin(t.Context())
			require.NoError(t, err)
			_, err = b.bySQL(tx, args)
			require.NoError(t, err)
			require.False(t, b.trim(1, b.Clock.Now()))
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, asyncflow.StatusSucceeded, b.task(needed).Status)
			require.True(t, b.trim(1, b.Clock.Now()))
			b.gone(needed)
			if name == "id" {
				require.Contains(t, b.sqlRefusal(app, args).Message, "which doesn't exist")
				return
			}
			_, err = b.bySQL(app, args)
			require.NoError(t, err)
			require.Equal(t, 1, b.count(b.at(0,
				`SELECT count(*) FROM {edges} WHERE on_key = 'k' AND on_id IS NULL`)))
		})
	}
}

// While a step of a job may delete tasks of a roll, a submit by SQL that depends on one waits.
func TestSQLDependentsWaitForTheTrimOfARoll(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	needed := b.endedTask("k")
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), b.at(0, `SELECT FROM {rolls} WHERE position = 1 FOR UPDATE`))
	require.NoError(t, err)
	app := b.app()
	_, err = app.Exec(t.Context(), `SET lock_timeout = '5ms'`)
	require.NoError(t, err)
	args := `'pipe', '1', depends_on => '[{"task": "` + needed.String() + `"}]'`
	require.Equal(t, pgerrcode.LockNotAvailable, b.sqlRefusal(app, args).Code)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = app.Exec(t.Context(), `SET lock_timeout = 0`)
	require.NoError(t, err)
	_, err = b.bySQL(app, args)
	require.NoError(t, err)
}

// A submit by SQL can't depend on a task of a roll that is being dropped.
func TestSQLDependsOnNothingOfADroppedRoll(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	needed := b.endedTask("k")
	b.exec(b.at(0, `UPDATE {rolls} SET remaining_since = now(), remaining_types = '{}',
		remaining_ids = NULL WHERE position = 1`))
	args := `'pipe', '1', depends_on => '[{"task": "` + needed.String() + `"}]'`
	require.Contains(t, b.sqlRefusal(b.app(), args).Message, "which doesn't exist")
}
