package store_test

import (
	"io/fs"
	"strconv"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
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
		if err == nil {
			s.Close()
		}
		return err
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
		require.NoError(t, <-errs)
	}
}

// A migration also brings the task types' tables of an earlier version up to date.
func TestMigrateTaskTypes(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	first := fstest.MapFS{}
	const name = "00001_init.sql"
	first[name] = &fstest.MapFile{}
	first[name].Data, err = fs.ReadFile(migrations.Tenant(), name)
	require.NoError(t, err)
	_, err = store.MigrateSchema(t.Context(), url, "tenant_acme", first)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
		INSERT INTO asyncflow.tenants (slug, schema_version) VALUES ('acme', 1);
		INSERT INTO tenant_acme.task_types
		  VALUES ('a-type', 1, '{"stages":[{"name":"only"}]}', 1, 1, 2, now(), now());
		INSERT INTO tenant_acme.rolls VALUES ('a-type', 1, 1, now()), ('a-type', 2, 1, now());
		CREATE TABLE tenant_acme."task_a-type_1" (id bigint, created_at timestamptz, context json);
		CREATE TABLE tenant_acme."task_a-type_2" (id bigint, created_at timestamptz, context json);
		INSERT INTO tenant_acme."task_a-type_1" (id, context)
		  VALUES (1, '{"n":  1}'), (2, NULL), (3, NULL);
		INSERT INTO tenant_acme."task_a-type_2" VALUES (4, '2026-01-02 03:04:05Z');
		CREATE TABLE tenant_acme."journal_a-type_1" (id bigint, seq int, at timestamptz, output json,
		    final text CHECK (final IN ('failed', 'succeeded')),
		    outcome text NOT NULL CHECK (outcome IN ('done', 'failed', 'redriven')));
		CREATE INDEX ON tenant_acme."journal_a-type_1" USING brin (at);
		CREATE TABLE tenant_acme."lease_a-type" (id bigint PRIMARY KEY, seq int, stage text, attempt int,
		    node text, leased_at timestamptz, until timestamptz, progress smallint, note text);
		INSERT INTO tenant_acme."lease_a-type" VALUES (5, 1, 'only', 1, 'node', now(), now());
		CREATE TABLE tenant_acme."wait_a-type" (id bigint PRIMARY KEY, seq int, stage text, attempt int,
		    order_time timestamptz, until timestamptz, key text,
		    reason text NOT NULL CHECK (reason IN ('delay', 'retry', 'endpoint')));
		INSERT INTO tenant_acme."wait_a-type" VALUES (6, 1, 'only', 1, now(), now(), NULL, 'retry');
		CREATE TABLE tenant_acme."ready_a-type_1" (order_time timestamptz, id bigint, seq int);
		CREATE TABLE tenant_acme."ready_a-type_2" (order_time timestamptz, id bigint, seq int);
		INSERT INTO tenant_acme."ready_a-type_2"
		  VALUES ('2026-01-02 02:04:05Z', 4, 1), ('2026-01-02 03:04:05Z', 4, 1),
		    ('2026-01-03 00:00Z', 4, 1);
		CREATE TABLE tenant_acme."journal_a-type_2" (LIKE tenant_acme."journal_a-type_1" INCLUDING ALL);
		INSERT INTO tenant_acme."journal_a-type_1" (id, seq, final, outcome)
		  VALUES (1, 1, NULL, 'failed'), (1, 2, 'succeeded', 'done'), (2, 1, 'failed', 'failed'),
		  (3, 1, 'failed', 'failed'), (3, 2, NULL, 'redriven')`)
	require.NoError(t, err)
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(),
		`SELECT ARRAY[submitted, attempts, failures, succeeded, failed, cancelled]
			FROM tenant_acme.tallies ORDER BY submitted`)
	require.NoError(t, err)
	tallies, err := pgx.CollectRows(rows, pgx.RowTo[[]int64])
	require.NoError(t, err)
	require.Equal(t, [][]int64{{1, 0, 0, 0, 0, 0}, {3, 4, 3, 1, 1, 0}}, tallies,
		"what was counted before there were tallies")
	var sinces []time.Time
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT array_agg(since) FROM tenant_acme."ready_a-type_2"
			WHERE since IS NOT NULL`).Scan(&sinces))
	require.Len(t, sinces, 1, "of a head start by priority")
	require.WithinDuration(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), sinces[0], 0)
	var brins int
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
			WHERE c.relname LIKE 'journal%' AND a.amname = 'brin'`).Scan(&brins))
	assert.Zero(t, brins, "indexes that nobody uses")
	var kept string
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT context FROM tenant_acme."task_a-type_1" WHERE context LIKE '{%'`).Scan(&kept))
	assert.Equal(t, `{"n":  1}`, kept)
	for _, table := range []string{"journal_a-type_1", "journal_a-type_2"} {
		insert := `INSERT INTO tenant_acme.` + pgx.Identifier{table}.Sanitize()
		_, err = conn.Exec(t.Context(), insert+` (id, outcome, options) VALUES (1, 'changed', '{}')`)
		require.NoError(t, err)
		for _, wrong := range []string{` (id, outcome) VALUES (1, 'nonsense')`,
			` (id, outcome, final) VALUES (1, 'done', 'nonsense')`} {
			_, err = conn.Exec(t.Context(), insert+wrong)
			require.ErrorContains(t, err, "check constraint")
		}
	}
	_, err = conn.Exec(t.Context(), `
		INSERT INTO tenant_acme."ready_a-type_1" (id, key) VALUES (1, 'k');
		INSERT INTO tenant_acme."ready_a-type_2" (id, key) VALUES (1, 'k')`)
	require.NoError(t, err)
	var live []int64
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT array_agg(k.id ORDER BY k.id)
		FROM (SELECT type, id FROM tenant_acme.lease UNION ALL SELECT type, id FROM tenant_acme.wait
		  UNION ALL SELECT type, id FROM tenant_acme."ready_a-type_1") k
		JOIN tenant_acme.task_types t ON t.number = k.type WHERE t.name = 'a-type'`).Scan(&live))
	assert.Equal(t, []int64{1, 5, 6}, live)
}

// A database from before suspended tenants and quotas is brought up to date with its tenants,
// and back.
func TestMigrateTenants(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	early := fstest.MapFS{}
	for _, name := range []string{"00001_init.sql", "00002_jobs.sql"} {
		data, err := fs.ReadFile(migrations.Asyncflow(), name)
		require.NoError(t, err)
		early[name] = &fstest.MapFile{Data: data}
	}
	_, err := store.MigrateSchema(t.Context(), url, "asyncflow", early)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(),
		`CREATE SCHEMA tenant_acme; INSERT INTO asyncflow.tenants (slug, schema_version)
			VALUES ('acme', 0)`)
	require.NoError(t, err)
	_, err = store.Open(t.Context(), store.Config{URL: url, Node: "n"})
	require.ErrorContains(t, err, "asyncflow migrate up")
	_, err = store.CreateTenant(t.Context(), url, "other")
	require.ErrorContains(t, err, "asyncflow migrate up")
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n"})
	require.NoError(t, err)
	known, ok := s.Catalog.Tenant("acme")
	require.True(t, ok)
	assert.False(t, known.Suspended)
	assert.Equal(t, asyncflow.DefaultQuotas, known.Quotas)
	s.Close()

	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	cfg.RuntimeParams["search_path"] = "asyncflow"
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Asyncflow(),
		goose.WithTableName("migrations"), goose.WithDisableGlobalRegistry(true))
	require.NoError(t, err)
	for _, to := range []int64{2, newest(t, migrations.Asyncflow())} {
		if to == 2 {
			_, err = p.DownTo(t.Context(), to)
		} else {
			_, err = p.Up(t.Context())
		}
		require.NoError(t, err)
		var slug string
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT slug FROM asyncflow.tenants`).Scan(&slug))
		assert.Equal(t, "acme", slug)
	}
}
