package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
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

// unfenced returns the URL of a database from before there were roles, with tasks.
func unfenced(t *testing.T) string {
	t.Helper()
	needsRoles(t)
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
		for _, r := range c.Submit(t.Context(), name,
			[]asyncflow.NewTask{newTask(`1`), newTask(`2`)}) {
			require.NoError(t, r.Err)
		}
	}
	return url
}

// owners returns who owns the schemas and tables of tenants, and how many tables each.
func (b *bundle) owners() map[string]int {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `
		SELECT nspname || ' ' || pg_get_userbyid(nspowner), count(*)
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
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
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_class WHERE relnamespace = 'tenant_acme'::regnamespace`).Scan(&tables))
	assert.Equal(t, tables, owners["tenant_acme "+role], "all earlier objects are the role's")
	pipe, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	for _, l := range b.lease(pipe, 10) {
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.EqualValues(t, 2, stats[0].Failed, "earlier tasks go on")
	opened, err := b.OpenRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	assert.True(t, opened, "and so do earlier tables")
	all := []string{tenant, "other"}
	for name, survey := range map[string]func() error{
		"keys":    func() error { _, err := b.FirstKeys(t.Context(), all); return err },
		"tallies": func() error { _, err := b.LastTallies(t.Context(), all); return err },
		"steps":   func() error { _, err := b.FirstSteps(t.Context(), all); return err },
		"ticks":   func() error { _, err := b.FirstTicks(t.Context(), all); return err },
		"operations": func() error {
			_, err := b.DueOperations(t.Context(), all, time.Now())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, survey())
		})
	}
}

// A migration waits for a table in use for a short time only, again and again, so that nobody
// waits behind it.
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
	tries := map[time.Time]bool{}
	require.Eventually(t, func() bool { // it gives up, and waits once more
		var began *time.Time
		_, err := tx.Exec(t.Context(), `SELECT pg_stat_clear_snapshot()`) // of pg_stat_activity
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT max(a.xact_start)
			FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE l.relation = 'tenant_acme.tallies'::regclass AND NOT l.granted`).Scan(&began))
		if began != nil {
			tries[*began] = true
		}
		return len(tries) > 1
	}, patience, 10*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, receive(t, done))
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
	require.ErrorContains(t, open(false),
		"tenant later has no database role yet: run asyncflow migrate up")
	_, err = store.CreateTenant(t.Context(), url, "later")
	require.NoError(t, err)
	require.NoError(t, open(false), "made for an earlier tenant")

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	// restored in another cluster
	_, err = conn.Exec(t.Context(), `UPDATE asyncflow.fence SET base_role = 'asyncflow_gone'`)
	require.NoError(t, err)
	require.ErrorContains(t, open(false), "asyncflow migrate up")
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err)
	require.NoError(t, open(false))
}

// A tenant that is created without a role while nodes run is left out, and delays nobody.
func TestTenantWithoutRole(t *testing.T) {
	needsRoles(t)
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

// login makes a database for a user that is no superuser, and returns its URL, the user's name,
// and a connection of an administrator.
func login(t testing.TB, attributes string) (url, user string, admin *pgx.Conn) {
	t.Helper()
	needsRoles(t)
	url = pgtest.Database(t, nil)
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	admin, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	user = fmt.Sprintf("login_%d", rand.Int64())
	_, err = admin.Exec(t.Context(),
		fmt.Sprintf(`CREATE ROLE %[1]s LOGIN PASSWORD 'secret' %[2]s;
			ALTER DATABASE %[3]s OWNER TO %[1]s`,
			user, attributes, pgx.Identifier{cfg.Database}.Sanitize()))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := admin.Exec(ctx,
			fmt.Sprintf(`REASSIGN OWNED BY %[1]s TO CURRENT_USER; DROP OWNED BY %[1]s; DROP ROLE %[1]s`,
				user))
		assert.NoError(t, err)
		assert.NoError(t, admin.Close(ctx))
	})
	return fmt.Sprintf("postgres://%s:secret@%s:%d/%s?sslmode=disable", user, cfg.Host, cfg.Port,
		cfg.Database), user, admin
}

// use does some of each kind of a store's work as the user of a URL.
func use(t *testing.T, url string, off bool) {
	t.Helper()
	s, err := store.Open(t.Context(),
		store.Config{URL: url, Node: "n", Notify: true, NoRoles: off,
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
	_, err = s.FirstTicks(t.Context(), []string{tenant})
	require.NoError(t, err)
	require.NoError(t, s.VacuumSet(t.Context(), pipe.Set()))
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
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.task_1`).Scan(&n), "a dump by that user has all")
	require.Equal(t, 1, n)
}

// For a user that may not, the error gives the statements for an administrator; or the user does
// without roles.
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
