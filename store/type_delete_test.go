package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

func TestStageWithLiveTasksStays(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	fewer := twoStages()
	fewer.Stages = fewer.Stages[1:]
	_, _, err := b.PutTaskType(t.Context(), tenant, fewer)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "in ready")
	l := b.lease(pipe, 1)[0]
	_, _, err = b.PutTaskType(t.Context(), tenant, fewer)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "in lease")
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	_, _, err = b.PutTaskType(t.Context(), tenant, fewer)
	require.NoError(t, err, "it is in another stage")
}

func TestDeleteTaskType(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	require.Equal(t, asyncflow.CodeConflict,
		asyncflow.CodeOf(b.DeleteTaskType(t.Context(), tenant, "pipe", false)))
	l := b.lease(pipe, 1)[0]
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	var left int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_tables
			WHERE schemaname = 'tenant_acme' AND tablename ~ 'pipe'`).Scan(&left))
	assert.Zero(t, left)
	require.Equal(t, asyncflow.CodeNotFound,
		asyncflow.CodeOf(b.DeleteTaskType(t.Context(), tenant, "pipe", false)))
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r[0].Err))
	b.put(twoStages()) // it can be created again
	b.submit(newTask(`1`))
}

// A delete must not slip between the submits of another node that doesn't know of it: they are
// refused, not lost.
func TestDeleteWhileSubmitting(t *testing.T) { eachSet(t, deleteWhileSubmitting) }

func deleteWhileSubmitting(t *testing.T, b *bundle) {
	b.put(twoStages())
	far := open(t, b.url, "node-2")
	stop := make(chan struct{})
	accepted := make(chan asyncflow.TaskID, 10000)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(accepted)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, r := range far.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)}) {
				if r.Err == nil {
					accepted <- r.ID
				} else {
					assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r.Err), "%v", r.Err)
				}
			}
		}
	})
	<-accepted
	err := b.DeleteTaskType(t.Context(), tenant, "pipe", false)
	assert.Contains(t, []asyncflow.Code{asyncflow.CodeConflict, asyncflow.CodeUnavailable},
		asyncflow.CodeOf(err), "live tasks keep it from being deleted")
	close(stop)
	waitAll(t, &wg)
	for id := range accepted {
		_, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err, "%s was acknowledged", id)
	}
}

// A delete makes all types of the tenant wait for no longer than need be: not if there are live
// tasks of the type, and not while its idempotency keys are deleted, which may be many.
func TestDeleteStopsTheTenantOnlyAtTheEnd(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(withKey("k", `1`))
	long, err := b.db.Begin(t.Context()) // as a transaction that submits by SQL holds them
	require.NoError(t, err)
	defer func() { _ = long.Rollback(context.Background()) }()
	_, err = long.Exec(t.Context(), fill(pipe, 1,
		`LOCK TABLE {task}, {ready} IN ROW EXCLUSIVE MODE`))
	require.NoError(t, err)
	err = b.DeleteTaskType(t.Context(), tenant, "pipe", false)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	require.NoError(t, long.Rollback(t.Context()))

	require.Len(t, b.failAll(), 1)
	b.exec(`CREATE FUNCTION tenant_acme.check() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			ASSERT NOT EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid()
				AND mode = 'ShareRowExclusiveLock' AND granted), 'other types wait';
			RETURN OLD;
		END $$`)
	b.exec(`CREATE TRIGGER checked BEFORE DELETE ON tenant_acme.idempotency_keys
		FOR EACH ROW EXECUTE FUNCTION tenant_acme.check()`)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
}

// A deletion that Postgres ends to resolve a deadlock is made again.
func TestDeleteTaskTypeAfterADeadlock(t *testing.T) {
	pgtest.NotOnCitus(t, "the coordinator finds the deadlocks, in its own time")
	b := setup(t)
	b.put(twoStages())
	ctx := t.Context()
	waiting := func(n int) {
		eventually(t, "sessions wait", func() (done bool) {
			require.NoError(t, b.db.QueryRow(ctx, `SELECT count(*) = $1 FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND datname = current_database()`, n).Scan(&done))
			return done
		})
	}
	begin := func(statements ...string) *pgx.Conn {
		conn, err := pgx.Connect(ctx, b.url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		for _, statement := range append([]string{`BEGIN`}, statements...) {
			_, err = conn.Exec(ctx, b.at(0, statement))
			require.NoError(t, err)
		}
		return conn
	}
	gate := begin(`SELECT FROM {types} FOR UPDATE`)
	deleted := make(chan error, 1)
	go func() { deleted <- b.DeleteTaskType(ctx, tenant, "pipe", false) }()
	waiting(1) // it has locked the rows of sets
	other := begin(`SET LOCAL deadlock_timeout = '1h'`, `LOCK TABLE {keys} IN EXCLUSIVE MODE`)
	locked := make(chan error, 1)
	sets := b.at(0, `SELECT FROM {sets} FOR UPDATE`)
	go func() {
		_, err := other.Exec(ctx, sets)
		locked <- err
	}()
	waiting(2)
	_, err := gate.Exec(ctx, `ROLLBACK`)
	require.NoError(t, err)
	require.NoError(t, receive(t, locked), "the deletion is what Postgres ends")
	_, err = other.Exec(ctx, `ROLLBACK`)
	require.NoError(t, err)
	require.NoError(t, receive(t, deleted))
}

// A type that shares its tables can't be deleted while one of its tasks is live, wherever it
// stands. Then nobody can write to it, its rows vanish in small steps, and a type of the same name
// sees none of its tasks.
func TestDeleteTypeInSharedTables(t *testing.T) {
	b := setup(t)
	pipe, beside := b.put(twoStages()), b.put(named("beside"))
	stays := b.submit(asyncflow.NewTask{Type: "beside", Context: []byte(`"stays"`)})[0].ID
	for place, moveTo := range places {
		moveTo(b, pipe)
		if place != "failed" {
			require.Equal(t, asyncflow.CodeConflict,
				asyncflow.CodeOf(b.DeleteTaskType(t.Context(), tenant, "pipe", false)), place)
		}
		b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
		_, err := b.Rescue(t.Context(), pipe)
		require.NoError(t, err)
		_, err = b.Promote(t.Context(), pipe, []string{"first"})
		require.NoError(t, err)
		for len(b.failAll()) > 0 {
		}
	}
	keyed := withKey("k", `"old"`)
	gone := b.submit(keyed)[0].ID
	require.Equal(t, []asyncflow.TaskID{gone}, b.failAll())
	b.past(pipe, 2*store.JobBatch+5, 0)

	late := behind(t, b)
	items := late.insertions(pipe, `"late"`)
	others := late.insertions(beside, `"late beside"`)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	before := b.dump()
	for _, all := range [][]*store.Writes{{{Type: pipe, New: items}},
		{{Type: beside, New: others}, {Type: pipe, New: items}}} {
		require.Error(t, late.commit(all))
	}
	err := late.InsertAgain(t.Context(), pipe, items)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
	_, err = late.Redrive(t.Context(), tenant, gone, store.Redrive{})
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
	_, err = late.InsertKeyed(t.Context(), pipe, withKeys(items, "late"), store.KeysTogether)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
	require.Equal(t, before, b.dump(), "nothing was changed")
	r := late.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`"late"`),
		withKey("late", `1`), {Type: "beside", Context: []byte(`"late"`)}})
	for _, r := range r[:2] {
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r.Err), "%v", r.Err)
	}
	require.NoError(t, r[2].Err)
	require.NoError(t, late.Catalog.Refresh(t.Context()))
	_, err = late.Task(t.Context(), tenant, gone)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)

	again := b.put(twoStages())
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = b.Task(t.Context(), tenant, gone)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	fresh := b.submit(keyed, newTask(`2`))
	require.False(t, fresh[0].Existing, "its key was the old type's")
	bySQL, err := b.bySQL(b.app(), `'pipe', '3'`)
	require.NoError(t, err)
	for _, id := range []asyncflow.TaskID{fresh[0].ID, fresh[1].ID, bySQL} {
		require.Zero(t, b.count(fill(pipe, 1, fmt.Sprintf(
			`SELECT count(*) FROM {task} WHERE type = {number} AND id = %d`, id.Number))),
			"no id comes again")
	}

	const left = `SELECT (SELECT count(*) FROM {task} WHERE type = {number}) +
		(SELECT count(*) FROM {journal} WHERE type = {number})`
	var deleting store.Deleting
	for rows := b.count(fill(pipe, 1, left)); rows > 0; {
		deleting, err = b.DeleteRows(t.Context(), tenant, deleting)
		require.NoError(t, err)
		require.True(t, deleting.More)
		require.Positive(t, deleting.Rows)
		require.LessOrEqual(t, deleting.Rows, 2*store.JobBatch)
		rows -= deleting.Rows
		require.Equal(t, rows, b.count(fill(pipe, 1, left)))
	}
	for deleting.More {
		deleting, err = b.DeleteRows(t.Context(), tenant, deleting)
		require.NoError(t, err)
		require.Zero(t, deleting.Rows)
	}
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.deleted_types`))
	require.Equal(t, asyncflow.StatusPending, b.task(stays).Status)
	require.Equal(t, asyncflow.StatusPending, b.task(bySQL).Status)
	require.Len(t, b.lease(again, 10), 3)
}

// No roll opens while a type is deleted: it would get tasks of the type from other nodes.
func TestDeleteWaitsForARoll(t *testing.T) { eachSet(t, deleteWaitsForARoll) }

func deleteWaitsForARoll(t *testing.T, b *bundle) {
	b.put(twoStages())
	opening, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = opening.Exec(t.Context(), `SELECT FROM tenant_acme.table_sets FOR NO KEY UPDATE`)
	require.NoError(t, err)
	deleted := make(chan error, 1)
	go func() { deleted <- b.DeleteTaskType(t.Context(), tenant, "pipe", false) }()
	b.blocked(1)
	require.NoError(t, opening.Rollback(t.Context()))
	require.NoError(t, receive(t, deleted))
}
