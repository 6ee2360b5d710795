package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Of two tasks with one key, the second one shares the fate of the first.
func TestDoublesOfARefusedTaskAreRefused(t *testing.T) {
	b := setupEdges(t)
	pipe := b.known()
	items := withKeys(b.insertions(pipe, `1`, `1`), "a", "a")
	for _, item := range items {
		item.DependsOn = []asyncflow.Dependency{{Type: "pipe", Key: "a"}}
	}
	require.NoError(t, b.InsertDependent(t.Context(), pipe, items))
	for _, item := range items {
		assert.Equal(t, asyncflow.CodeDependency, asyncflow.CodeOf(item.Refused))
		assert.Zero(t, item.Key.Holder)
	}
}

// A commit with a lost answer is tried again, also after a roll was opened.
func TestDependentsAreInsertedOnce(t *testing.T) {
	b := setupEdges(t)
	old := b.known()
	items := withKeys(b.insertions(old, `1`, `2`), "a", "b")
	for _, item := range items {
		item.DependsOn = []asyncflow.Dependency{byKey("k")}
		item.Options.DependsOn = 1
		item.Verdict.Kind, item.Verdict.Reason = asyncflow.Park, asyncflow.WaitDependencies
	}
	require.NoError(t, b.InsertDependent(t.Context(), old, items[:1]))
	require.NoError(t, b.InsertDependent(t.Context(), old, items[:1]))
	b.roll()
	require.True(t, store.RolledOn(b.InsertDependent(t.Context(), old, items)))
	now, left, err := b.Renumber(t.Context(), old, items)
	require.NoError(t, err)
	require.Equal(t, items[1:], left)
	require.NoError(t, b.InsertDependent(t.Context(), now, left))
	require.NoError(t, b.InsertDependent(t.Context(), now, nil))
	var edges, counted int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM tenant_acme.edges),
		(SELECT sum(submitted) FROM tenant_acme.tallies)`).Scan(&edges, &counted))
	assert.Equal(t, 2, edges)
	assert.Equal(t, 2, counted)
	b.submit(newBase("k"))
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	for _, item := range items {
		b.comesTo(item.ID, asyncflow.StatusPending)
	}
	b.checkTokens("pipe")
}

// However many unknown types the tasks of a call depend on, their configuration is read once.
func TestManyUnknownTypesAreReadOnce(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 50)
	for i := range tasks {
		tasks[i] = newTask(`1`)
		for n := range 10 {
			tasks[i].DependsOn = append(tasks[i].DependsOn,
				asyncflow.Dependency{Type: fmt.Sprintf("unknown-%d-%d", i, n), Key: "k"})
		}
	}
	before := b.Base().Stat().AcquireCount()
	for _, r := range b.Submit(t.Context(), tenant, tasks) {
		require.ErrorContains(t, r.Err, "unknown-")
	}
	require.Less(t, b.Base().Stat().AcquireCount()-before, int64(100))
}

// So it is with unknown types of the tasks themselves.
func TestTasksOfManyUnknownTypesReadThemOnce(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 500)
	for i := range tasks {
		tasks[i] = newTask(`1`)
		tasks[i].Type = fmt.Sprintf("unknown-%d", i)
	}
	before := b.Base().Stat().AcquireCount()
	for _, r := range b.Submit(t.Context(), tenant, tasks) {
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r.Err))
	}
	require.Less(t, b.Base().Stat().AcquireCount()-before, int64(100))
}
