package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

// A task can't be redriven once the drop of its roll has begun: it may have lost its dependencies.
func TestRedriveMeetsADrop(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	needed := b.submit(newTask(`"needed"`))[0].ID
	dependent := newTask(`"dependent"`)
	dependent.DependsOn = []asyncflow.Dependency{{Task: needed}}
	id := b.submit(dependent)[0].ID
	b.failAll()
	b.comesTo(id, asyncflow.StatusFailed)
	b.rollAndClear()
	b.idle(true)
	edges := b.at(1, `SELECT count(*) FROM {edges}`)
	require.Equal(t, 1, b.count(edges))
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), b.at(1, `LOCK TABLE {task} IN ACCESS SHARE MODE`))
		require.NoError(t, err)
		require.False(t, b.drop(b.Clock.Now()), "its tables are in use")
		require.Zero(t, b.count(edges))
		for _, r := range []store.Redrive{{}, {DryRun: true, Dependents: true}} {
			for _, id := range []asyncflow.TaskID{needed, id} {
				_, err = b.Redrive(t.Context(), tenant, id, r)
				require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
			}
		}
		require.False(t, b.compact(1, b.Clock.Now()))
		rolls, err := b.Rolls(t.Context(), tenant)
		require.NoError(t, err)
		require.True(t, rolls[0].Dropping)
		return nil
	}))
	// The drop goes on, whatever the retention is by now.
	require.True(t, b.drop(b.Clock.Now().Add(-b.Catalog.Retention(b.known().Set(), 1))))
	_, err := b.Task(t.Context(), tenant, id)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// failFirst makes the first task of flow key a fail, in a roll of its own, and returns it.
func failFirst(t *testing.T) (b *bundle, first asyncflow.TaskID) {
	t.Helper()
	b = setup(t)
	spec := twoStages()
	spec.Flow = &blocks
	b.put(spec)
	first = b.submit(keyed("a", `"first"`))[0].ID
	b.submit(newTask(`"other"`))
	leases := b.admitAll()
	require.Len(t, leases, 2)
	b.settleAll(b.known(), leases, rejected)
	require.Equal(t, asyncflow.StatusFailed, b.task(first).Status)
	b.rollAndClear()
	b.idle(true)
	return b, first
}

// A failed task is kept while other tasks of its flow key wait for its redrive. All other tasks of
// its roll go.
func TestABlockerOfAFlowKeyIsKept(t *testing.T) {
	b, first := failFirst(t)
	next := b.submit(keyed("a", `"next"`))[0].ID
	b.keyBlocked(next)
	require.False(t, b.drop(b.Clock.Now()))
	require.True(t, b.compact(1, b.Clock.Now()))
	require.Equal(t, 1, b.count(b.at(1, `SELECT count(*) FROM {task}`)))
	require.Equal(t, asyncflow.StatusFailed, b.task(first).Status)
	require.False(t, b.drop(b.Clock.Now()))
	b.keyBlocked(next)

	_, err := b.Redrive(t.Context(), tenant, first, store.Redrive{})
	require.NoError(t, err)
	for range 2 {
		leases := b.soon()
		require.Equal(t, first, leases[0].ID)
		b.settle(b.known(), leases[0], goodEnd)
	}
	require.Equal(t, next, b.soon()[0].ID)
	b.idle(true)
	require.True(t, b.drop(b.Clock.Now()))
}

// A failed task that is dropped blocks no task that comes later.
func TestADroppedTaskBlocksNoFlowKey(t *testing.T) {
	b, _ := failFirst(t)
	require.Equal(t, 1, b.count(b.at(1, `SELECT count(*) FROM {blocks}`)))
	require.True(t, b.drop(b.Clock.Now()))
	require.Zero(t, b.count(b.at(2, `SELECT count(*) FROM {blocks}`)))
	next := b.submit(keyed("a", `"next"`))[0].ID
	require.Equal(t, next, b.soon()[0].ID)
}

// The deletion of what belongs to tasks in tables of all rolls reads each row once, and once more
// at the end, also while a snapshot keeps deleted ones. Rows that come behind it meanwhile go, too.
func TestTreeRowsAreReadOnce(t *testing.T) {
	const count = 20_000
	b := setup(t)
	for _, name := range []string{"pipe", "other"} {
		kind := twoStages()
		kind.Name = name
		b.put(kind)
	}
	insert := `INSERT INTO tenant_acme.fan_outs (type, id, seq, waits, stage, rule, count)
		SELECT number, n, 2, 2, 'first', '{}', 2 FROM tenant_acme.task_types, generate_series($1::int, $2) n`
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { // it sees what it deletes
		_, err := tx.Exec(t.Context(), insert, 1, count/2)
		require.NoError(t, err)
		var rows settings.TreeRows
		sum := 0
		for more, late := true, true; more; sum += rows.Rows {
			more, err = rows.Delete(t.Context(), tx, b.known().Set().Tables,
				`SELECT number FROM tenant_acme.task_types`, `r.id < $1`, count)
			require.NoError(t, err)
			if late && sum > count/2 {
				late = false
				_, err = tx.Exec(t.Context(), insert, 0, 0)
				require.NoError(t, err)
			}
		}
		require.Equal(t, count+2, sum)
		var read int
		require.NoError(t, tx.QueryRow(t.Context(), `
			SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index
			WHERE indrelid = 'tenant_acme.fan_outs'::regclass`).Scan(&read))
		require.Less(t, read, 5*count)
		return nil
	})
	require.NoError(t, err)
}
