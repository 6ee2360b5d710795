package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A worker that is killed and comes back. It is a test of its own, as all others need the worker.
func TestWorkersOfCitusComeBack(t *testing.T) {
	t.Parallel()
	pgtest.OnCitusToo(t, "TestWorkerComesBack")
}

// place returns the URL of the worker that has a tenant, and of another one.
func (b *bundle) place(tenant string) (here, other string) {
	b.t.Helper()
	var port string
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT n.nodeport::text
		FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid)
		JOIN pg_dist_node n USING (groupid)
		WHERE s.logicalrelid = ($1 || '.rolls')::regclass`, "tenant_"+tenant).Scan(&port))
	workers, err := pgtest.WorkersOf(b.t.Context(), b.url)
	require.NoError(b.t, err)
	for _, w := range workers {
		u, err := url.Parse(w)
		require.NoError(b.t, err)
		if u.Port() == port {
			here = w
		} else {
			other = w
		}
	}
	require.NotEmpty(b.t, here)
	require.NotEmpty(b.t, other)
	return here, other
}

// moveSchema moves a tenant to the other worker. Citus refuses that at once while a node makes a
// table, as for the roll that each such move makes necessary.
func (b *bundle) moveSchema(ctx context.Context, tenant string) error {
	_, to := b.place(tenant)
	u, err := url.Parse(to)
	require.NoError(b.t, err)
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for until := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		_, err = conn.Exec(ctx, `SELECT citus_schema_move($1::text::regnamespace, $2, $3::int,
			'block_writes')`, "tenant_"+tenant, u.Hostname(), u.Port())
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Routine != "AcquirePlacementColocationLock" ||
			time.Now().After(until) {
			return err
		}
	}
}

// hotPlan returns the plan of a statement over hot connections.
func (b *bundle) hotPlan(sql string) string {
	b.t.Helper()
	rows, err := b.DBOf(tenant, true).Query(b.t.Context(), "EXPLAIN "+sql)
	require.NoError(b.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return strings.Join(lines, "\n")
}

// Hot statements run on the tables that the worker has, also of a new roll. The names of
// functions stay.
func TestHotStatementsNameTheTablesOfTheWorker(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setupTwo(t)
	b.put(twoStages())
	eventually(t, "the node knows the worker", func() bool {
		return b.connectionsToWorkers() > 0
	})
	for _, sql := range []string{`SELECT 1 FROM {task}`, `SELECT 1 FROM "tenant_acme".numbering`,
		`SELECT "tenant_acme".table_size('{journal}'), 1 FROM {lease}`} {
		plan := b.hotPlan(b.at(1, sql))
		assert.NotContains(t, plan, "Citus", sql)
		assert.Contains(t, plan, "_1", sql)
	}
	var mode string
	require.NoError(t, b.DBOf(tenant, true).QueryRow(t.Context(),
		`SELECT current_setting('plan_cache_mode')`).Scan(&mode))
	assert.Equal(t, "force_generic_plan", mode)
	for _, name := range []string{`"tenant_acme"."nothing"`, `"tenant_other"."rolls"`} {
		plan := func() string {
			rows, err := b.DBOf(tenant, true).Query(t.Context(), `EXPLAIN SELECT 1 FROM `+name)
			if err != nil {
				return err.Error()
			}
			lines, _ := pgx.CollectRows(rows, pgx.RowTo[string])
			return strings.Join(lines, "\n")
		}()
		if strings.Contains(name, "other") && !pgtest.NoRoles() {
			assert.Contains(t, plan, pgerrcode.InsufficientPrivilege)
		} else if strings.Contains(name, "other") {
			assert.Contains(t, plan, "Citus", "another tenant's tables are as Citus shows them")
		} else {
			assert.Contains(t, plan, "does not exist")
		}
	}
}

// A move waits for a transaction at the worker that it leaves. Later ones there are refused, and
// what is written meanwhile is where the tenant is.
func TestMoveWaitsForHotTransactions(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	ctx := t.Context()
	b.put(twoStages())
	eventually(t, "the node knows the worker", func() bool {
		return !strings.Contains(b.hotPlan(`SELECT 1 FROM "tenant_acme".rolls`), "Citus")
	})
	here, _ := b.place(tenant)
	insert := b.at(1, `INSERT INTO {locks} (name, number) VALUES ('test', $1)`)
	old := b.DBOf(tenant, true)
	tx, err := old.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, insert, 1)
	require.NoError(t, err)

	moved := make(chan error, 1)
	go func() { moved <- b.moveSchema(ctx, tenant) }()
	worker, err := pgx.Connect(ctx, here)
	require.NoError(t, err)
	defer worker.Close(ctx)
	eventually(t, "the move waits", func() bool {
		var waits bool
		require.NoError(t, worker.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database
			WHERE datname = current_database()))`).Scan(&waits))
		_, err := tx.Exec(ctx, `SELECT 1`) // so that it isn't idle for too long
		require.NoError(t, err)
		return waits
	})
	require.Empty(t, moved)
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, receive(t, moved))

	_, err = old.Exec(ctx, insert, 2)
	assert.Equal(t, pgerrcode.UndefinedTable, sqlState(err), "%v", err)
	_, err = b.DBOf(tenant, true).Exec(ctx, insert, 3)
	require.NoError(t, err, "the worker hands it on until the node knows the new one")
	var numbers []int32
	require.NoError(t, b.db.QueryRow(ctx, b.at(1, `SELECT array_agg(number ORDER BY number)
		FROM {locks} WHERE name = 'test'`)).Scan(&numbers))
	assert.Equal(t, []int32{1, 3}, numbers)
	eventually(t, "the node knows the new worker", func() bool {
		return !strings.Contains(b.hotPlan(`SELECT 1 FROM "tenant_acme".rolls`), "Citus")
	})
}

// No acknowledged task is lost, and none done twice, while its tenant moves to and fro.
func TestTasksWhileATenantMoves(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	b.put(single())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var submitting, running sync.WaitGroup
	var submitted, settled atomic.Int64
	done := make(chan struct{}) // all moves are
	for range 2 {
		submitting.Go(func() { b.submitUntil(done, &submitted) })
	}
	running.Go(func() { b.settleUntil(ctx, &settled) })
	for range longform.Size(2, 10) {
		before := settled.Load()
		require.NoError(t, b.moveSchema(ctx, tenant))
		eventually(t, "tasks are done at the other worker", func() bool {
			return settled.Load() > before+100
		})
	}
	close(done)
	waitAll(t, &submitting)
	kept := b.kept(b.known())
	assert.GreaterOrEqual(t, kept, submitted.Load(), "no acknowledged task is lost")
	eventually(t, "all are done", func() bool { return settled.Load() >= kept })
	stop()
	waitAll(t, &running)
	b.checkTokens("pipe")
	assert.Equal(t, kept, settled.Load(), "each was done once")
}

// submitUntil submits tasks of the type pipe until done is closed, and counts what is acknowledged.
func (b *bundle) submitUntil(done <-chan struct{}, submitted *atomic.Int64) {
	for {
		select {
		case <-done:
			return
		default:
		}
		tasks := make([]asyncflow.NewTask, 20)
		for i := range tasks {
			tasks[i] = newTask(fmt.Sprint(i))
		}
		for _, r := range b.Submit(b.t.Context(), tenant, tasks) {
			if r.Err == nil {
				submitted.Add(1)
				continue
			}
			assert.Contains(b.t, []asyncflow.Code{asyncflow.CodeUnavailable,
				asyncflow.CodeUncertain}, asyncflow.CodeOf(r.Err), "%v", r.Err)
		}
	}
}

// settleUntil leases and settles tasks until ctx ends, each once, and counts them.
func (b *bundle) settleUntil(ctx context.Context, settled *atomic.Int64) {
	seen := map[asyncflow.TaskID]bool{}
	for ctx.Err() == nil {
		pipe, err := b.Catalog.Type(tenant, "pipe") // a move may open a roll
		if !assert.NoError(b.t, err) {
			return
		}
		leases, _, err := b.Lease(ctx, pipe, 50)
		if err != nil && ctx.Err() == nil {
			assert.Equal(b.t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
		}
		var each sync.WaitGroup
		for _, l := range leases {
			assert.False(b.t, seen[l.ID], "%s was leased twice", l.ID)
			seen[l.ID] = true
			each.Add(1)
			o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
			b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
				Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.Clock.Now())},
				func(r store.Settled) {
					if assert.NoError(b.t, r.Err) && !r.Stale {
						settled.Add(1)
					}
					each.Done()
				})
		}
		each.Wait()
	}
}

// kept counts the tasks that a type has.
func (b *bundle) kept(t *store.Type) (all int64) {
	b.t.Helper()
	for _, position := range t.Rolls() {
		var n int64
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), fill(t, position,
			`SELECT count(*) FROM {task} WHERE type = {number}`)).Scan(&n))
		all += n
	}
	return all
}

// While a worker is gone, its tenants' calls fail, and all others go on. When it is back, its
// tenants' tasks come through.
func TestWorkerComesBack(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestWorkersOfCitusComeBack runs it")
	}
	ctx := t.Context()
	servers, url := pgtest.Citus(t)
	require.NoError(t, prepareTwo(ctx, url))
	b := open(t, url, "node-1")
	pipe := b.putOf(tenant, single())
	other := b.putOf("other", single())
	here, _ := b.place(tenant)
	there, _ := b.place("other")
	require.NotEqual(t, here, there)
	submitTo := func(tenant string) error {
		return b.Submit(ctx, tenant, []asyncflow.NewTask{newTask(`1`)})[0].Err
	}
	eventually(t, "the node knows the worker", func() bool {
		return !strings.Contains(b.hotPlan(`SELECT 1 FROM "tenant_acme".rolls`), "Citus")
	})
	require.NoError(t, submitTo(tenant))
	killed := servers[slices.IndexFunc(servers, func(s *devpg.Server) bool {
		return strings.Contains(here, fmt.Sprint(":", s.Config().Port, "/"))
	})]
	require.NoError(t, killed.Kill())
	failed := make(chan error, 1)
	go func() { failed <- submitTo(tenant) }()
	for n, waiting := 0, true; waiting || n < 20; n++ {
		require.NoError(t, submitTo("other"))
		select {
		case err := <-failed:
			require.Contains(t, []asyncflow.Code{asyncflow.CodeUnavailable,
				asyncflow.CodeUncertain}, asyncflow.CodeOf(err), "%v", err)
			waiting = false
		default:
		}
	}
	assert.NotEmpty(t, b.lease(other, 1))
	pgtest.Server(t, killed.Config())
	eventually(t, "submits are taken again", func() bool { return submitTo(tenant) == nil })
	var leases []asyncflow.Lease
	eventually(t, "leases are given again", func() bool {
		more, _, err := b.Lease(ctx, pipe, 2-len(leases))
		leases = append(leases, more...)
		return err == nil && len(leases) == 2
	})
	for _, l := range leases {
		require.NoError(t, b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone}).Err)
	}
	b.checkTokens("pipe")
}
