package store_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Why tests don't run on Citus.
const (
	otherPlan    = "Citus shows its own plan; hot statements run on plain tables of the worker"
	countedThere = "Postgres counts rows and pages where they are, on the worker"
)

// needsRoles skips a test of database roles where tenants have none.
func needsRoles(t testing.TB) {
	t.Helper()
	if pgtest.NoRoles() {
		t.Skip("not on Citus without roles: tenants have no database roles there")
	}
}

// Whatever happened on a connection before, each tenant's statements run under its role, and
// work that belongs to no tenant under the base role.
func TestEveryStatementHasItsRole(t *testing.T) {
	needsRoles(t)
	b := setupTwo(t)
	_, err := store.CreateTenant(t.Context(), b.url, "third")
	require.NoError(t, err)
	want := map[string]string{}
	for _, name := range []string{tenant, "other", "third"} {
		want[name], err = b.RoleOf(t.Context(), name)
		require.NoError(t, err)
	}
	troubles := map[string]string{ // SQLSTATEs by the statement that is run in the middle
		`SELECT 1 / 0`: pgerrcode.DivisionByZero,
		`SELECT pg_terminate_backend(pg_backend_pid())`: pgerrcode.AdminShutdown,
		`SELECT FROM nowhere`:                           pgerrcode.UndefinedTable,
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range longform.Size(24, 64) {
		wg.Go(func() {
			for range longform.Size(4, 10) {
				for name, role := range want {
					for kind, run := range b.Roles(ctx, name, "") {
						got, err := run()
						assert.NoError(t, err, kind)
						assert.Equal(t, role, got, "%s of %s", kind, name)
					}
					var got string
					assert.NoError(t,
						b.Base().QueryRow(ctx, `SELECT current_user::text`).Scan(&got))
					assert.Equal(t, b.BaseRole(), got)
				}
			}
		})
	}
	for name := range want {
		wg.Go(func() {
			for range 5 {
				for do := range troubles {
					for kind, run := range b.Roles(ctx, name, do) {
						if _, err := run(); kind != "query" && kind != "hot query" &&
							kind != "unprepared" {
							assert.Error(t, err, "%s: %s", kind, do)
						}
					}
					short, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
					_ = b.Outside(short, name, `SELECT pg_sleep(1)`)
					cancel()
				}
			}
		})
	}
	waitAll(t, &wg)
}

// A statement that can't be in a transaction also runs under the role, and the connection
// doesn't keep it.
func TestRoleOutsideOfATransaction(t *testing.T) {
	needsRoles(t)
	b := setupTwo(t)
	require.NoError(t, b.Outside(t.Context(), tenant,
		`CREATE TABLE tenant_acme.made AS SELECT current_user::text AS by`))
	require.Equal(t, pgerrcode.InsufficientPrivilege,
		sqlState(b.Outside(t.Context(), "other", `DROP TABLE tenant_acme.made`)))
	role, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	var by string
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT by FROM tenant_acme.made`).Scan(&by))
	assert.Equal(t, role, by)
	for _, conn := range b.Base().AcquireAllIdle(t.Context()) {
		var got string
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_user::text`).Scan(&got))
		conn.Release()
		require.Equal(t, b.BaseRole(), got)
	}
	b.put(twoStages())
	b.submit(newTask(`1`))
	pipe, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	require.NoError(t, b.VacuumSet(t.Context(), pipe.Set()))
	eventually(t, "a tenant may vacuum its tables", func() bool {
		var n int
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'ready_1'`).Scan(&n))
		return n == 1
	})
}

// A role is dropped with the last database that uses it.
func TestDropTenantRole(t *testing.T) {
	needsRoles(t)
	b := setupTwo(t)
	_, err := store.CreateTenant(t.Context(), b.url, "mine")
	require.NoError(t, err)
	drop := func(name string) bool {
		t.Helper()
		role, err := b.RoleOf(t.Context(), name)
		require.NoError(t, err)
		dropped, err := b.DropTenantRole(t.Context(), role)
		require.NoError(t, err)
		return dropped
	}
	assert.False(t, drop("mine"), "its schema is there")
	b.exec(`DROP SCHEMA tenant_mine CASCADE`)
	assert.True(t, drop("mine"))
	assert.True(t, drop("mine"), "again")
	b.exec(`DROP SCHEMA tenant_other CASCADE`)
	assert.False(t, drop("other"), "the database that this one was copied from has it")
	b.exec(`DELETE FROM asyncflow.tenants WHERE slug IN ('mine', 'other')`)
	_, err = store.CreateTenant(t.Context(), b.url, "other")
	require.NoError(t, err, "made again, with the role that is there")
	_, err = store.CreateTenant(t.Context(), b.url, "mine")
	require.NoError(t, err)
}

// Names of roles fit into Postgres' 63 bytes, and no two databases share any by accident.
func TestRoleNames(t *testing.T) {
	needsRoles(t)
	t.Parallel()
	longest := strings.Repeat("a", 40)
	roles := map[string]bool{}
	for range 2 {
		url := pgtest.Database(t, nil)
		_, err := store.Migrate(t.Context(), url)
		require.NoError(t, err)
		_, err = store.CreateTenant(t.Context(), url, longest)
		require.NoError(t, err)
		b := open(t, url, "n")
		role, err := b.RoleOf(t.Context(), longest)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(role, "_"+longest), role)
		roles[role], roles[b.BaseRole()] = true, true
	}
	assert.Len(t, roles, 4)
}

// While a role is missing, as after a restore without its roles, nothing fails for good: calls are
// 503, an operation goes on, and a settlement can be written once the role is there.
func TestNothingFailsForGoodWithoutItsRole(t *testing.T) {
	needsRoles(t)
	t.Parallel()
	server := pgtest.PreparedServer(t, prepare) // of our own, as roles belong to all databases
	b := open(t, server.URL("postgres"), "node-1")
	pipe := b.put(twoStages())
	b.submit(newTask(`1`), newTask(`2`))
	lease := b.lease(pipe, 1)[0]
	_, due := b.start(store.CancelTasks, store.NewOperation{})
	var base, role string
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT base_role,
		(SELECT role FROM asyncflow.tenants WHERE slug = $1) FROM asyncflow.fence`, tenant).
		Scan(&base, &role))
	rename := func(from, to string) {
		b.exec(`ALTER ROLE ` + pgx.Identifier{from}.Sanitize() + ` RENAME TO ` +
			pgx.Identifier{to}.Sanitize())
	}
	rename(base, base+"_gone")
	_, err := b.Pause(t.Context(), tenant, "pipe", "")
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	rename(base+"_gone", base)

	rename(role, role+"_gone")
	_, err = b.StepOperation(t.Context(), due, b.Submit)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	require.False(t, store.IsDataError(err))
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "never"}
	ends := []*store.Ending{{Settlement: &asyncflow.Settlement{Lease: lease, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, lease, o, b.Clock.Now())}}}
	err = b.SettleAgain(t.Context(), pipe, ends)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	require.False(t, store.IsDataError(err) || store.IsRefused(err))
	rename(role+"_gone", role)
	eventually(t, "the settlement",
		func() bool { return b.SettleAgain(t.Context(), pipe, ends) == nil })
	require.Equal(t, store.OperationRunning, b.operation(due).State)
	b.step(due)
}
