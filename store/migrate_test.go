package store_test

import (
	"fmt"
	"io/fs"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store"
)

// newest returns the number of the last migration of a set.
func newest(t *testing.T, set fs.FS) int64 {
	t.Helper()
	names, err := fs.Glob(set, "*.sql")
	require.NoError(t, err)
	n, err := strconv.ParseInt(names[len(names)-1][:5], 10, 64)
	require.NoError(t, err)
	return n
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	open := func() error {
		s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n"})
		if err != nil {
			return err
		}
		s.Close()
		return nil
	}
	require.ErrorContains(t, open(), "asyncflow migrate up")
	_, err := store.CreateTenant(t.Context(), url, tenant)
	require.ErrorContains(t, err, "asyncflow migrate up")
	status, err := store.Status(t.Context(), url)
	require.NoError(t, err)
	assert.Equal(t,
		[]store.MigrationStatus{{Schema: "asyncflow", Version: 0,
			Latest: newest(t, migrations.Asyncflow())}}, status)
	for range 2 { // again changes nothing
		_, err = store.Migrate(t.Context(), url)
		require.NoError(t, err)
	}
	for _, created := range []bool{true, false} {
		got, err := store.CreateTenant(t.Context(), url, tenant)
		require.NoError(t, err)
		assert.Equal(t, created, got)
	}
	_, err = store.CreateTenant(t.Context(), url, "Bad Name")
	require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	require.NoError(t, open())
	status, err = store.Status(t.Context(), url)
	require.NoError(t, err)
	base, own := newest(t, migrations.Asyncflow()), newest(t, migrations.Tenant())
	assert.Equal(t, []store.MigrationStatus{{Schema: "asyncflow", Version: base, Latest: base},
		{Schema: "tenant_acme", Version: own, Latest: own}}, status)

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `UPDATE asyncflow.tenants SET schema_version = 0`)
	require.NoError(t, err)
	require.ErrorContains(t, open(), "a tenant's schema is at version 0")
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err)
	require.NoError(t, open())
}

// Nodes that start at once migrate one after the other.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	errs := make(chan error, 4)
	for range 4 {
		go func() {
			_, err := store.Migrate(t.Context(), url)
			errs <- err
		}()
	}
	for range 4 {
		require.NoError(t, receive(t, errs))
	}
}

// withSecond returns the migrations of tenants, and another one after them.
func withSecond(t *testing.T, sql string) fs.FS {
	t.Helper()
	set := fstest.MapFS{}
	names, err := fs.Glob(migrations.Tenant(), "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		data, err := fs.ReadFile(migrations.Tenant(), name)
		require.NoError(t, err)
		set[name] = &fstest.MapFile{Data: data}
	}
	second := fmt.Sprintf("%05d_second.sql", newest(t, set)+1)
	set[second] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql)}
	return set
}

// A migration that fails leaves nothing, and the next program can run its own. Nodes of the
// version before go on beside the newer schema.
func TestMigrateToASecondVersion(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := open(t, url, "node-1")
	pipe := b.put(twoStages())
	own := newest(t, migrations.Tenant())
	_, err := store.MigrateSchema(t.Context(), url, "tenant_acme", withSecond(t,
		`ALTER TABLE task_types ADD COLUMN news text; SELECT 1 / 0;`))
	require.ErrorContains(t, err, "division by zero")
	const columns = `SELECT count(*) FROM information_schema.columns
		WHERE table_schema = 'tenant_acme' AND column_name = 'news'`
	require.Zero(t, b.count(columns))
	require.EqualValues(t, own, b.count(`SELECT max(version_id) FROM tenant_acme.schema_versions`))

	status, err := store.MigrateSchema(t.Context(), url, "tenant_acme", withSecond(t,
		`ALTER TABLE task_types ADD COLUMN news text;`))
	require.NoError(t, err)
	require.Equal(t, store.MigrationStatus{Schema: "tenant_acme", Version: own, Latest: own + 1},
		status)
	require.Equal(t, 1, b.count(columns))
	b.submit(newTask(`1`))
	require.Len(t, b.lease(pipe, 1), 1)
	later := open(t, url, "node-2")
	later.submit(newTask(`2`))
	_, err = store.Migrate(t.Context(), url, store.WithoutRoles(pgtest.NoRoles()))
	require.NoError(t, err, "the program of the version before")
	require.EqualValues(t, own+1,
		b.count(`SELECT max(version_id) FROM tenant_acme.schema_versions`))
}

// A table of the old name in a new database is somebody else's: an application of the same user may
// have made it.
func TestATableOfAnApplicationIsNoDevelopmentVersion(t *testing.T) {
	b := setup(t)
	b.exec(`CREATE TABLE asyncflow.migrations (name text)`)
	_, err := store.Migrate(t.Context(), b.url)
	require.NoError(t, err)
	_, err = store.CreateTenant(t.Context(), b.url, "later")
	require.NoError(t, err)
}

// Only who is granted to submit by SQL may run functions of a tenant.
func TestFunctionsOfATenantAreNotPublic(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("without roles: %t", off), func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t, nil)
			_, err := store.Migrate(t.Context(), url, store.WithoutRoles(off))
			require.NoError(t, err)
			_, err = store.CreateTenant(t.Context(), url, tenant, store.WithoutRoles(off))
			require.NoError(t, err)
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			defer conn.Close(t.Context())
			var all, public int
			require.NoError(t, conn.QueryRow(t.Context(), `
				SELECT count(*), count(*) FILTER (WHERE has_function_privilege('public', oid, 'EXECUTE'))
				FROM pg_proc WHERE pronamespace::regnamespace::text = 'tenant_acme'`).Scan(&all, &public))
			require.Positive(t, all)
			require.Zero(t, public)
		})
	}
}

// A database of a development version is refused, and stays as it is.
func TestMigrateRefusesDevelopmentVersions(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
				ALTER TABLE asyncflow.schema_versions RENAME TO migrations;
				UPDATE asyncflow.migrations SET version_id = 44 WHERE version_id = 1`)
	require.NoError(t, err)
	shape := func() (lines []string) {
		t.Helper()
		err := conn.QueryRow(t.Context(), `
					SELECT array_agg(concat_ws(' ', relnamespace::regnamespace, relname, relowner, relacl,
			  CASE WHEN relnamespace = 'asyncflow'::regnamespace AND relkind = 'r'
			    THEN query_to_xml('SELECT * FROM ' || oid::regclass, true, true, '') END)
					  ORDER BY oid)
					FROM pg_class
					WHERE relnamespace::regnamespace::text ~ '^(asyncflow|tenant_)'`).Scan(&lines)
		require.NoError(t, err)
		return lines
	}
	before := shape()
	for name, do := range map[string]func() error{
		"migrate": func() error { _, err := store.Migrate(t.Context(), url); return err },
		"without roles": func() error {
			_, err := store.Migrate(t.Context(), url, store.WithoutRoles(true))
			return err
		},
		"start": func() error {
			_, err := store.Migrate(t.Context(), url, store.StaleOnly())
			return err
		},
		"status": func() error { _, err := store.Status(t.Context(), url); return err },
		"tenant": func() error {
			_, err := store.CreateTenant(t.Context(), url, "later")
			return err
		},
		"tenant without a role": func() error {
			_, err := store.CreateTenant(t.Context(), url, "later", store.WithoutRoles(true))
			return err
		},
		"record": func() error {
			return store.RecordByHand(t.Context(), url, asyncflow.AuditEntry{
				Origin: asyncflow.AuditFromCLI, Action: "schema.migrate",
				Outcome: asyncflow.AuditFailed})
		},
		"open": func() error {
			s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n"})
			if err != nil {
				return err
			}
			s.Close()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := do()
			require.ErrorContains(t, err,
				"development version before 0.1 (asyncflow.migrations is at 44)")
			require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
		})
	}
	require.Equal(t, before, shape())
}
