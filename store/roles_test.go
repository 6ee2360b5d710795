package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Whatever happened on a connection before, each tenant's statements run under its role,
// and what belongs to no tenant under the base role.
func TestEveryStatementHasItsRole(t *testing.T) {
	b := setup(t)
	_, err := store.CreateTenant(t.Context(), b.url, "third")
	require.NoError(t, err)
	want := map[string]string{}
	for _, name := range []string{tenant, "other", "third"} {
		want[name], err = b.RoleOf(t.Context(), name)
		require.NoError(t, err)
	}
	troubles := map[string]string{ // SQLSTATEs by what is run in the middle
		`SELECT 1 / 0`: "22012",
		`SELECT pg_terminate_backend(pg_backend_pid())`: "57P01",
		`SELECT FROM nowhere`:                           "42P01",
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 10 {
				for name, role := range want {
					for kind, run := range b.Roles(ctx, name, "") {
						got, err := run()
						assert.NoError(t, err, kind)
						assert.Equal(t, role, got, "%s of %s", kind, name)
					}
					var got string
					assert.NoError(t, b.Base().QueryRow(ctx, `SELECT current_user::text`).Scan(&got))
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
						if _, err := run(); kind != "query" && kind != "hot query" && kind != "unprepared" {
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
	wg.Wait()
}

// What can't be in a transaction runs under the role too, and leaves nothing behind.
func TestRoleOutsideOfATransaction(t *testing.T) {
	b := setup(t)
	require.NoError(t, b.Outside(t.Context(), tenant, `CREATE TABLE tenant_acme.made AS SELECT current_user::text AS by`))
	require.Equal(t, "42501", sqlState(b.Outside(t.Context(), "other", `DROP TABLE tenant_acme.made`)))
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
	require.NoError(t, b.VacuumType(t.Context(), pipe))
	eventually(t, "a tenant may vacuum its tables", func() bool {
		var n int
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'ready_pipe_1'`).Scan(&n))
		return n == 1
	})
}

// unfenced returns the URL of a database as it was before there were roles, with tasks.
func unfenced(t *testing.T) string {
	t.Helper()
	url := pgtest.Database(t, nil)
	off := store.WithoutRoles(true)
	_, err := store.Migrate(t.Context(), url, off)
	require.NoError(t, err)
	for _, name := range []string{tenant, "other"} {
		_, err = store.CreateTenant(t.Context(), url, name, off)
		require.NoError(t, err)
	}
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "old", NoRoles: true})
	require.NoError(t, err)
	defer s.Close()
	c := dispatcher.NewCommitter(s, nil)
	defer c.Close()
	for _, name := range []string{tenant, "other"} {
		_, _, err := s.PutTaskType(t.Context(), name, twoStages())
		require.NoError(t, err)
		for _, r := range c.Submit(t.Context(), name, []asyncflow.NewTask{newTask(`1`), newTask(`2`)}) {
			require.NoError(t, r.Err)
		}
	}
	return url
}

// owners returns who owns the schemas and tables of tenants, and how many tables each.
func (b *bundle) owners() map[string]int {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `
		SELECT nspname || ' ' || pg_get_userbyid(nspowner), count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname LIKE 'tenant%' AND relowner = nspowner GROUP BY 1`)
	require.NoError(b.t, err)
	all := map[string]int{}
	var who string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&who, &n}, func() error {
		all[who] = n
		return nil
	})
	require.NoError(b.t, err)
	return all
}

func TestMigrateToRoles(t *testing.T) {
	t.Parallel()
	url := unfenced(t)
	require.NoError(t, store.MigrateDownTo(t.Context(), url, 2))
	_, err := store.Open(t.Context(), store.Config{URL: url, Node: "n"})
	require.ErrorContains(t, err, "asyncflow migrate up")
	for range 2 { // again changes nothing
		status, err := store.Migrate(t.Context(), url)
		require.NoError(t, err)
		require.Len(t, status, 3)
	}
	b := open(t, url, "node-1")
	role, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	assert.Equal(t, b.BaseRole()+"_acme", role)
	owners := b.owners()
	assert.Len(t, owners, 2)
	var tables int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = 'tenant_acme'::regnamespace`).Scan(&tables))
	assert.Equal(t, tables, owners["tenant_acme "+role], "all that was there is the role's")
	pipe, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	for _, l := range b.lease(pipe, 10) {
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.EqualValues(t, 2, stats[0].Failed, "tasks from before go on")
	opened, err := b.OpenRoll(t.Context(), pipe)
	require.NoError(t, err)
	assert.True(t, opened, "and so do tables from before")
	for name, survey := range map[string]func() error{
		"keys":       func() error { _, err := b.TenantsToExpire(t.Context()); return err },
		"tallies":    func() error { _, err := b.Unfolded(t.Context()); return err },
		"operations": func() error { _, err := b.DueOperations(t.Context(), time.Now()); return err },
		"schedules":  func() error { _, err := b.DueSchedules(t.Context()); return err },
	} {
		require.NoError(t, survey(), name)
	}
	require.NoError(t, store.MigrateDownTo(t.Context(), url, 2))
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err, "down and up again")
}

// A table that is in use is waited for in short turns, so that nobody waits behind us.
func TestMigrateToRolesWaitsForTables(t *testing.T) {
	t.Parallel()
	url := unfenced(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO tenant_acme.tallies (type, at) VALUES ('pipe', now())`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := store.Migrate(t.Context(), url)
		done <- err
	}()
	time.Sleep(700 * time.Millisecond) // longer than one turn
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
}

func TestOpenNeedsRoles(t *testing.T) {
	t.Parallel()
	url := unfenced(t)
	open := func(off bool) error {
		s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n", NoRoles: off})
		if err == nil {
			s.Close()
		}
		return err
	}
	require.ErrorContains(t, open(false), "--database-roles=off", "what there is to do")
	require.NoError(t, open(true))
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	require.NoError(t, open(false))
	require.NoError(t, open(true), "the database's owner may still do all")
	_, err = store.CreateTenant(t.Context(), url, "later", store.WithoutRoles(true))
	require.NoError(t, err)
	require.ErrorContains(t, open(false), "tenant later has no database role yet: run asyncflow migrate up")
	_, err = store.CreateTenant(t.Context(), url, "later")
	require.NoError(t, err)
	require.NoError(t, open(false), "made for a tenant that was there")

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), `UPDATE asyncflow.fence SET base_role = 'asyncflow_gone'`) // restored in another cluster
	require.NoError(t, err)
	require.ErrorContains(t, open(false), "asyncflow migrate up")
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err)
	require.NoError(t, open(false))
}

// A tenant that is made without a role while nodes run is left out, and holds up nobody.
func TestTenantWithoutRole(t *testing.T) {
	b := setup(t)
	_, err := store.CreateTenant(t.Context(), b.url, "later", store.WithoutRoles(true))
	require.NoError(t, err)
	b.put(twoStages())
	_, known := b.Catalog.Tenant("later")
	assert.False(t, known)
	_, _, err = b.TypePage(t.Context(), "later", "", 1)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	_, _, err = b.TypePage(t.Context(), "nobody", "", 1)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
	_, err = store.Migrate(t.Context(), b.url)
	require.NoError(t, err)
	eventually(t, "it is taken in", func() bool {
		_, known := b.Catalog.Tenant("later")
		return known
	})
	_, _, err = b.PutTaskType(t.Context(), "later", twoStages())
	require.NoError(t, err)
}

// login makes a database of its own for a user that is no superuser, and returns its
// URL, the user's name, and a connection of an administrator.
func login(t testing.TB, attributes string) (url, user string, admin *pgx.Conn) {
	t.Helper()
	url = pgtest.Database(t, nil)
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	admin, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	user = fmt.Sprintf("login_%d", rand.Int64())
	_, err = admin.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %[1]s LOGIN PASSWORD 'secret' %[2]s; ALTER DATABASE %[3]s OWNER TO %[1]s`,
		user, attributes, pgx.Identifier{cfg.Database}.Sanitize()))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := admin.Exec(ctx, fmt.Sprintf(`REASSIGN OWNED BY %[1]s TO CURRENT_USER; DROP OWNED BY %[1]s; DROP ROLE %[1]s`, user))
		assert.NoError(t, err)
		assert.NoError(t, admin.Close(ctx))
	})
	return fmt.Sprintf("postgres://%s:secret@%s:%d/%s?sslmode=disable", user, cfg.Host, cfg.Port, cfg.Database), user, admin
}

// use has a store do some of each kind of work as the user of a URL.
func use(t *testing.T, url string, off bool) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n", Notify: true, NoRoles: off,
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	c := dispatcher.NewCommitter(s, nil)
	defer c.Close()
	_, _, err = s.PutTaskType(t.Context(), tenant, twoStages())
	require.NoError(t, err)
	require.NoError(t, c.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})[0].Err)
	pipe, err := s.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	leases, _, err := s.Lease(t.Context(), pipe, 1)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	_, err = s.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	_, err = s.DueSchedules(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.VacuumType(t.Context(), pipe))
}

// A user that may make roles needs nothing else.
func TestUserThatMakesRoles(t *testing.T) {
	t.Parallel()
	url, _, _ := login(t, "CREATEROLE")
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	_, err = store.CreateTenant(t.Context(), url, tenant)
	require.NoError(t, err)
	use(t, url, false)
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err)
	s, err := store.Status(t.Context(), url)
	require.NoError(t, err)
	require.Len(t, s, 2)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM tenant_acme.task_pipe_1`).Scan(&n), "a dump by that user has all")
	require.Equal(t, 1, n)
}

// One that may not is told what an administrator has to do, word by word; or does without.
func TestUserThatMayMakeNoRoles(t *testing.T) {
	t.Parallel()
	url, user, admin := login(t, "")
	statements := regexp.MustCompile(`(?m)^  (CREATE ROLE .*;)$`)
	does := func(what func() error) {
		t.Helper()
		err := what()
		require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, `ALTER ROLE "`+user+`" CREATEROLE`)
		require.ErrorContains(t, err, "--database-roles=off")
		found := statements.FindAllStringSubmatch(err.Error(), -1)
		require.NotEmpty(t, found, "%v", err)
		for _, statement := range found {
			_, err := admin.Exec(t.Context(), statement[1])
			require.NoError(t, err)
		}
		require.NoError(t, what())
	}
	does(func() error { _, err := store.Migrate(t.Context(), url); return err })
	does(func() error { _, err := store.CreateTenant(t.Context(), url, tenant); return err })
	use(t, url, false)

	without, _, _ := login(t, "")
	_, err := store.Migrate(t.Context(), without, store.WithoutRoles(true))
	require.NoError(t, err)
	_, err = store.CreateTenant(t.Context(), without, tenant, store.WithoutRoles(true))
	require.NoError(t, err)
	use(t, without, true)
}

// A role goes with the last database that uses it.
func TestDropTenantRole(t *testing.T) {
	b := setup(t)
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
