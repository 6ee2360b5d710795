package store_test

import (
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// endedTask returns a task that ended in the first roll, which is cleared.
func (b *bundle) endedTask(key string) asyncflow.TaskID {
	b.t.Helper()
	task := newTask(`"needed"`)
	task.Options.Key = key
	id := b.submit(task)[0].ID
	for range 2 { // both stages
		for _, l := range b.lease(b.known(), 10) {
			b.settle(b.known(), l, goodEnd)
		}
	}
	b.rollAndClear()
	return id
}

// dependentOn returns a new task that depends on another one.
func (b *bundle) dependentOn(on asyncflow.Dependency) []*store.Insertion {
	b.t.Helper()
	items := b.insertions(b.known(), `1`)
	items[0].DependsOn = []asyncflow.Dependency{on}
	items[0].Options.DependsOn = 1
	items[0].Verdict.Kind, items[0].Verdict.Reason = asyncflow.Park, asyncflow.WaitDependencies
	return items
}

// While a step of a job may delete ended tasks of a roll, no task is submitted that depends on one:
// the step looked already whether there are any. Afterwards it is refused, or waits for the next
// task of the key.
func TestDependentsWaitForTheTrimOfARoll(t *testing.T) {
	for name, on := range map[string]func(asyncflow.TaskID) asyncflow.Dependency{
		"id": func(id asyncflow.TaskID) asyncflow.Dependency { return asyncflow.Dependency{Task: id} },
		"key": func(asyncflow.TaskID) asyncflow.Dependency {
			return asyncflow.Dependency{Type: "pipe", Key: "k"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.put(twoStages())
			needed := b.endedTask("k")
			tx, err := b.db.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), b.at(0, `SELECT FROM {rolls} WHERE position = 1 FOR UPDATE`))
			require.NoError(t, err)
			items := b.dependentOn(on(needed))
			err = b.InsertDependent(t.Context(), b.known(), items)
			var refused *pgconn.PgError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, pgerrcode.LockNotAvailable, refused.Code)
			require.NoError(t, tx.Rollback(t.Context()))
			require.True(t, b.trim(1, b.Clock.Now()))
			b.gone(needed)
			require.NoError(t, b.InsertDependent(t.Context(), b.known(), items))
			if name == "id" {
				require.ErrorContains(t, items[0].Refused, "which doesn't exist")
				return
			}
			require.NoError(t, items[0].Refused)
			require.Equal(t, 1, b.count(b.at(0,
				`SELECT count(*) FROM {edges} WHERE on_key = 'k' AND on_id IS NULL`)))
		})
	}
}

// A step of a trim does nothing to a roll while a task is submitted that depends on one of its
// tasks.
func TestATrimWaitsForDependents(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	needed := b.endedTask("k")
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	kept, err := store.KeepRoll(t.Context(), tx, b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, kept)
	require.False(t, b.trim(1, b.Clock.Now()))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, asyncflow.StatusSucceeded, b.task(needed).Status)
	require.True(t, b.trim(1, b.Clock.Now()))
	b.gone(needed)
}

// A task of a roll that is being dropped is as good as gone.
func TestNothingDependsOnTasksOfADroppedRoll(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	needed := b.endedTask("k")
	b.exec(b.at(0, `UPDATE {rolls} SET remaining_since = now(), remaining_types = '{}',
		remaining_ids = NULL WHERE position = 1`))
	items := b.dependentOn(asyncflow.Dependency{Task: needed})
	require.NoError(t, b.InsertDependent(t.Context(), b.known(), items))
	require.ErrorContains(t, items[0].Refused, "which doesn't exist")
}
