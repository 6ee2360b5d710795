package store_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// connect connects to a server until the end of the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// planOver returns the plan of a statement over a database, or its error.
func planOver(t *testing.T, db interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, sql string) string {
	t.Helper()
	rows, err := db.Query(t.Context(), "EXPLAIN "+sql)
	if err != nil {
		return err.Error()
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// Rows of outbox are written to the table of the worker, each with a number that no other has:
// also after the tenant has moved, and has come back, and beside rows by the coordinator.
func TestRowsAreNumberedAtTheWorker(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	ctx := t.Context()
	b.put(twoStages())
	insert := b.at(0, `INSERT INTO {outbox} (kind, due, type, id)
		SELECT 'test', 'infinity', 1, n FROM generate_series(1, 3) AS n`)
	numbers := func() (n, distinct int) {
		require.NoError(t, b.db.QueryRow(ctx, b.at(0, `SELECT count(*), count(DISTINCT seq)
			FROM {outbox} WHERE kind = 'test'`)).Scan(&n, &distinct))
		return n, distinct
	}
	for moves := range 3 {
		if moves > 0 {
			require.NoError(t, b.moveSchema(ctx, tenant))
		}
		eventually(t, "hot statements name the table at the worker", func() bool {
			plan := planOver(t, b.DBOf(tenant, true), insert)
			return strings.Contains(plan, "Insert on outbox_") && !strings.Contains(plan, "Citus")
		})
		eventually(t, "so do those that follow", func() bool {
			plan := planOver(t, b.FollowDBOf(tenant), insert)
			return strings.Contains(plan, "Insert on outbox_") && !strings.Contains(plan, "Citus")
		})
		for _, db := range append(b.DBsOfCoordinator(tenant), b.DBOf(tenant, true),
			b.FollowDBOf(tenant)) {
			_, err := db.Exec(ctx, insert)
			require.NoError(t, err)
		}
		n, distinct := numbers()
		assert.Equal(t, 12*(moves+1), n)
		assert.Equal(t, n, distinct)
	}
}

// A FollowUp runs at the worker, without the coordinator, and makes children there. Its
// transaction keeps the tenant from moving, and a move that has begun lets it wait only shortly.
func TestFollowUpsGoStraightToTheWorker(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setupFanOut(t)
	ctx := t.Context()
	b.onWorker()
	here, _ := b.place(tenant)
	worker := connect(t, here)
	l := b.leaseNew(`{"items":[1,2]}`)
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})

	work := b.BeginFollowUp(ctx, tenant, store.FollowUpRows)
	defer work.Rollback()
	var direct int
	require.NoError(t, worker.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'asyncflow'
		AND state = 'idle in transaction'`).Scan(&direct))
	assert.Equal(t, 1, direct, "its transaction is at the worker")
	require.Len(t, work.MayBegin(), 1)
	_, err := work.Commit()
	require.NoError(t, err)
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	b.checkTokens("pipe")

	locked, err := worker.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = locked.Rollback(ctx) }()
	_, err = locked.Exec(ctx, `SELECT lock_shard_metadata(7, ARRAY[shardid]) FROM pg_dist_shard
		WHERE logicalrelid = 'tenant_acme.rolls'::regclass`)
	require.NoError(t, err)
	late := b.BeginFollowUp(ctx, tenant, store.FollowUpRows)
	_, err = late.Commit()
	assert.Equal(t, pgerrcode.LockNotAvailable, sqlState(err), "%v", err)
	require.NoError(t, locked.Rollback(ctx))
	var patience string
	require.NoError(t, b.FollowDBOf(tenant).QueryRow(ctx,
		`SELECT current_setting('lock_timeout')`).Scan(&patience))
	assert.Equal(t, "0", patience, "only the wait for the place is short")
}

// leaseNew submits a task and leases it.
func (b *bundle) leaseNew(doc string) asyncflow.Lease {
	b.t.Helper()
	b.submit(newTask(doc))
	return b.leaseAll(b.known(), 1)[0]
}

// A FollowUp that makes children doesn't have the row of the roll locked: other nodes get numbers
// from there at once.
func TestSubmitsGetNumbersBesideAFollowUp(t *testing.T) {
	b := setupFanOut(t)
	other := open(t, b.url, "node-2")
	other.byHand()
	l := b.leaseNew(`{"items":[1,2]}`)
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})

	work := b.BeginFollowUp(t.Context(), tenant, store.FollowUpRows)
	defer work.Rollback()
	require.Len(t, work.MayBegin(), 1, "it is about to make children")
	r := other.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})[0]
	require.NoError(t, r.Err)
	_, err := work.Commit()
	require.NoError(t, err)
	b.checkTokens("pipe")
}

// A tenant with tables of another owner is served by the names that Citus shows, and no other
// tenant is. When the owner changes, nodes notice without a restart. Another user than the owner
// can't lock the tables against hot transactions, and is told so.
func TestTenantsWithAnotherOwner(t *testing.T) {
	if !pgtest.NoRoles() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setupTwo(t)
	ctx := t.Context()
	b.put(twoStages())
	pipe := b.putOf("other", twoStages())
	own := func(schema, user string) {
		rows, err := b.db.Query(ctx, `SELECT format('ALTER TABLE %s OWNER TO %I', c.oid::regclass,
			$2::text) FROM pg_class c WHERE relnamespace = $1::regnamespace AND relkind = 'r'`,
			schema, user)
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, alter := range all {
			b.exec(alter)
		}
	}
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	user := "app_" + strings.TrimPrefix(u.Path, "/")
	before := u.User.Username()
	b.exec(`CREATE ROLE ` + user + ` LOGIN`)
	grant := func(schema string) {
		for _, what := range []string{"SCHEMA ", "ALL TABLES IN SCHEMA ",
			"ALL SEQUENCES IN SCHEMA ", "ALL FUNCTIONS IN SCHEMA "} {
			b.exec(`GRANT ALL ON ` + what + schema + ` TO ` + user)
		}
	}
	grant("asyncflow")
	grant("tenant_acme")
	grant("tenant_other")
	own("tenant_acme", user)
	u.User = url.User(user)
	app := open(t, u.String(), "node-2")
	app.put(twoStages())

	plan := func(tenant string) string {
		return planOver(t, app.DBOf(tenant, true), `SELECT 1 FROM "tenant_`+tenant+`".rolls`)
	}
	eventually(t, "the owner's tables are named", func() bool {
		return !strings.Contains(plan(tenant), "Citus")
	})
	assert.Contains(t, plan("other"), "Citus")
	for _, of := range []string{tenant, "other"} {
		r := app.Submit(ctx, of, []asyncflow.NewTask{newTask(`1`)})[0]
		require.NoError(t, r.Err)
	}
	tx, err := app.DBOf("other", false).Begin(ctx)
	require.NoError(t, err)
	err = store.LockTables(ctx, tx, pipe, 1)
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	assert.ErrorContains(t, err, "must own the tables of tenant other")
	require.NoError(t, tx.Rollback(ctx))

	own("tenant_other", user)
	eventually(t, "the node has noticed", func() bool {
		return !strings.Contains(plan("other"), "Citus")
	})
	own("tenant_acme", before)
	grant("tenant_acme") // what the owner had has gone to the next one
	eventually(t, "it has noticed that, too", func() bool {
		r := app.Submit(ctx, tenant, []asyncflow.NewTask{newTask(`1`)})[0]
		return r.Err == nil && strings.Contains(plan(tenant), "Citus")
	})
}

// A worker that isn't told of moves serves no tenant straight: what it knows of places may be old,
// and rows that are written there would be lost.
func TestWorkersThatAreNotTold(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	ctx := t.Context()
	b.put(single())
	b.onWorker()
	here, _ := b.place(tenant)
	u, err := url.Parse(here)
	require.NoError(t, err)
	b.exec(`UPDATE pg_dist_node SET hasmetadata = false, metadatasynced = false
		WHERE nodeport = ` + u.Port())
	eventually(t, "statements go through the coordinator", func() bool {
		var port string
		require.NoError(t, b.DBOf(tenant, true).QueryRow(ctx, `SELECT inet_server_port()::text`).
			Scan(&port))
		return port != u.Port()
	})
	require.NoError(t, b.moveSchema(ctx, tenant))
	r := b.Submit(ctx, tenant, []asyncflow.NewTask{newTask(`1`)})[0]
	require.NoError(t, r.Err)
	assert.EqualValues(t, 1, b.kept(b.known()), "the task is where the tenant is")
}
