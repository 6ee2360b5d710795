package store_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A transaction with a snapshot that is older than a roll, of an unchanged type, submits tasks that
// are found in that roll.
func TestOldSnapshotsSearchNewRolls(t *testing.T) { eachSet(t, oldSnapshotsSearchNewRolls) }

func oldSnapshotsSearchNewRolls(t *testing.T, b *bundle) {
	b.put(searchable(twoStages()))
	for roll, isolation := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		app := b.app()
		begin(t, app, isolation)
		b.roll()
		id, err := b.bySQL(app, `'pipe', '1', labels => '{"user":"u1","tags":["eu"]}'`)
		require.NoError(t, err)
		require.Equal(t, roll+2, id.Position())
		_, err = app.Exec(t.Context(), "COMMIT")
		require.NoError(t, err)
		assert.Equal(t, 2*(roll+1), b.checkSearch("pipe"), isolation)
		b.failAll()
		drained, err := b.DrainRoll(t.Context(), b.known().Set())
		require.NoError(t, err)
		require.True(t, drained)
	}
	b.checkFound("pipe", store.Filter{Labels: store.LabelFilter{User: "u1"}})
}

// The choice of the index is that of the roll which is read: that hardly any task of the latest one
// comes with a value says nothing about the one before.
func TestEachRollHasItsBestIndex(t *testing.T) { eachSet(t, eachRollHasItsBestIndex) }

func eachRollHasItsBestIndex(t *testing.T, b *bundle) {
	pipe := b.put(searchable(twoStages()))
	b.submit(labelled("u1", "rare"), labelled("u1", "rare"))
	b.leaseAll(pipe, 2)
	b.past(pipe, store.PageLook+1, 0)
	b.exec(b.at(1, `UPDATE {task} SET options = '{"user":"u1"}' WHERE options IS NULL;
		INSERT INTO {search} (type, entry, id) SELECT t.type, e, t.id
		FROM {task} t, {search_entries}('{"user":1}', 1, t.options) e ON CONFLICT DO NOTHING`))
	b.roll()
	b.submit(labelled("", "rare"), labelled("", "rare"))
	b.leaseAll(b.known(), 2)
	b.checkSearch("pipe")
	user := store.LabelFilter{User: "u1"}
	both := store.LabelFilter{User: "u1", Name: "order", Value: "rare"}
	for name, f := range map[string]store.Filter{
		"status":     {Labels: user, Status: asyncflow.StatusRunning},
		"rare value": {Labels: both},
	} {
		t.Run(name, func(t *testing.T) {
			f.Type = "pipe"
			f.Limit = 10
			page, err := b.TaskPage(t.Context(), tenant, f)
			require.NoError(t, err)
			assert.Len(t, page.Tasks, 2)
			assert.LessOrEqual(t, page.Searched.Tasks, 4)
			assert.Zero(t, page.Next)
		})
	}
}

// A node that doesn't know yet that a field was left out finds the tasks that another one submits
// from then on: in lists of one type and of all types, counts, and the steps of operations.
func TestFieldsLeftOutAreNotTrusted(t *testing.T) { eachSet(t, fieldsLeftOutAreNotTrusted) }

func fieldsLeftOutAreNotTrusted(t *testing.T, b *bundle) {
	b.put(base())
	b.put(searchable(twoStages()))
	far, steps := behind(t, b), behind(t, b)
	for _, node := range []*bundle{far, steps} {
		require.NoError(t, node.Catalog.RefreshTenant(t.Context(), tenant))
	}
	b.put(twoStages())
	id := b.submit(labelled("u1", "1"))[0].ID
	b.failAll()
	f := store.Filter{Limit: 10, Labels: store.LabelFilter{User: "u1"}}
	for _, of := range []string{"pipe", ""} {
		f.Type = of
		page, err := far.TaskPage(t.Context(), tenant, f)
		require.NoError(t, err)
		require.Len(t, page.Tasks, 1, of)
		counted, err := far.TaskCount(t.Context(), tenant, f)
		require.NoError(t, err)
		require.EqualValues(t, 1, counted.Tasks, of)
	}
	f.Type = "pipe"
	require.NotEmpty(t, far.known().SearchFrom(), "it doesn't know")
	o, err := far.StartOperation(t.Context(), tenant,
		store.NewOperation{Kind: store.EraseTasks, Filter: f})
	require.NoError(t, err)
	require.EqualValues(t, 1, o.Total)
	require.NotEmpty(t, steps.known().SearchFrom(), "it doesn't know")
	eventually(t, "it is done", func() bool { // the node's clock may be behind the other's
		step, err := steps.StepOperation(t.Context(), store.DueOperation{Tenant: tenant,
			Type: "pipe", ID: o.ID, At: o.CreatedAt}, nil)
		require.NoError(t, err)
		return step.Done == 1
	})
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Empty(t, task.Options.User)
}

// locksSearchFirst reports whether do waits for the table search of the first roll, not for that of
// the tasks, while a transaction reads both. It calls do again and again, as that waits for a
// moment only.
func (b *bundle) locksSearchFirst(do func(context.Context) error) (first bool) {
	b.t.Helper()
	tx, err := b.db.Begin(b.t.Context())
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, tx.Rollback(b.t.Context())) }()
	_, err = tx.Exec(b.t.Context(), b.at(1, `LOCK TABLE {search}, {task} IN ACCESS SHARE MODE`))
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = do(ctx)
		}
	})
	defer wg.Wait()
	defer cancel()
	eventually(b.t, "it waits for a table", func() bool {
		return tx.QueryRow(b.t.Context(), b.at(1, `SELECT relation = '{search}'::regclass
			FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'
			AND relation IN ('{search}'::regclass, '{task}'::regclass)`)).Scan(&first) == nil
	})
	return first
}

// Whoever drops the tables of a roll locks them in the order in which lists do.
func TestDropsLockSearchFirst(t *testing.T) {
	b := setup(t)
	b.own = true
	b.put(searchable(twoStages()))
	b.submit(labelled("u1", "1"))
	b.rollAndClear()
	b.idle(true)
	require.True(t, b.locksSearchFirst(func(ctx context.Context) error {
		_, err := b.DropRoll(ctx, b.known().Set(), b.Clock.Now())
		return err
	}))
	require.True(t, b.locksSearchFirst(func(ctx context.Context) error {
		return b.DeleteTaskType(ctx, tenant, "pipe", false)
	}))
}

// A transaction that keeps a type as it is makes a change of the type fail, but keeps no other type
// from getting its next roll.
func TestATypeThatIsLockedForLong(t *testing.T) {
	b := setup(t)
	b.put(searchable(twoStages()))
	app := b.app()
	begin(t, app, "REPEATABLE READ")
	b.roll()
	_, err := b.bySQL(app, `'pipe', '1', labels => '{"user":"u1"}'`)
	require.NoError(t, err)
	changed := searchable(twoStages())
	changed.ScheduleLimit = 7
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, _, err = b.PutTaskType(ctx, tenant, changed)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), err)
	require.ErrorContains(t, err, "by SQL")
	_, err = app.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.Equal(t, 7, b.put(changed).ScheduleLimit)
}
