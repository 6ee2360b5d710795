package schema

import (
	"context"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/migrations"
)

// openFence returns the role fence of a new database, and the database's URL.
func openFence(t *testing.T) (*RoleFence, string) {
	t.Helper()
	url := pgtest.Database(t, nil)
	_, err := Migrate(t.Context(), url, false)
	require.NoError(t, err)
	f, err := OpenRoleFence(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close(context.Background()) })
	return f, url
}

// describeSQL describes all that is in a schema, a line each.
const describeSQL = `
WITH s AS (SELECT * FROM pg_namespace WHERE nspname = $1),
  c AS (SELECT c.* FROM pg_class c JOIN s ON relnamespace = s.oid)
SELECT concat_ws(' ', 'schema', nspowner::regrole, nspacl) FROM s
UNION ALL SELECT concat_ws(' ', relkind, relname, relowner::regrole, relacl, reloptions,
  reltoastrelid > 0) FROM c
UNION ALL SELECT concat_ws(' ', 'column', relname, attnum, attname,
  format_type(atttypid, atttypmod), attnotnull, attidentity, attacl, attstorage, attcompression,
    pg_get_expr(adbin, adrelid))
  FROM c JOIN pg_attribute ON attrelid = c.oid
    LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
  WHERE relkind = 'r'
UNION ALL SELECT concat_ws(' ', 'constraint', conname, pg_get_constraintdef(k.oid))
  FROM pg_constraint k JOIN s ON connamespace = s.oid
UNION ALL SELECT pg_get_indexdef(c.oid) FROM c WHERE relkind = 'i'
UNION ALL SELECT concat_ws(' ', pg_get_functiondef(p.oid), proowner::regrole, proacl)
  FROM pg_proc p JOIN s ON pronamespace = s.oid
UNION ALL SELECT pg_get_ruledef(r.oid) FROM pg_rewrite r JOIN c ON ev_class = c.oid
UNION ALL SELECT concat_ws(' ', 'sequence', c.relname, seqstart, seqincrement, seqmax, seqcycle)
  FROM pg_sequence JOIN c ON seqrelid = c.oid
UNION ALL SELECT concat_ws(' ', 'rows of', relname, query_to_xml(format('SELECT * FROM %s',
    CASE relname WHEN 'migrations'
        THEN format('(SELECT id, version_id, is_applied FROM %s) m', c.oid::regclass)
      WHEN 'numbering' THEN format('(SELECT first_number FROM %s) n', c.oid::regclass)
      ELSE c.oid::regclass::text END), true, true, ''))
  FROM c WHERE relkind = 'r'
ORDER BY 1`

// describe returns what is in a tenant's schema, with the tenant's name left out.
func describe(t *testing.T, conn *pgx.Conn, tenant string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), describeSQL, Of(tenant))
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], tenant, "T")
	}
	return lines
}

// nothing enters nothing.
func nothing(pgx.Tx) error { return nil }

func TestANewSchemaIsAsGooseMakesIt(t *testing.T) {
	t.Parallel()
	f, url := openFence(t)
	done, err := f.Create(t.Context(), "scripted", nothing)
	require.NoError(t, err)
	require.True(t, done, "no migration is left to goose")
	_, err = f.Conn().Exec(t.Context(), `CREATE SCHEMA tenant_stepwise`)
	require.NoError(t, err)
	done, err = f.Create(t.Context(), "stepwise", nothing)
	require.NoError(t, err)
	require.False(t, done, "there is such a schema")
	_, err = f.Migrate(t.Context(), url, "stepwise")
	require.NoError(t, err)
	want := describe(t, f.Conn(), "stepwise")
	require.Greater(t, len(want), 200)
	assert.Equal(t, want, describe(t, f.Conn(), "scripted"))
	var user string
	require.NoError(t, f.Conn().QueryRow(t.Context(), `SELECT current_user`).Scan(&user))
	assert.Equal(t, f.user, user, "the connection is no tenant's in the end")
}

// withMigration returns the migrations of tenants and one more.
func withMigration(t *testing.T, text string) fs.FS {
	t.Helper()
	set := fstest.MapFS{"99999_more.sql": {Data: []byte(text)}}
	names, err := fs.Glob(migrations.Tenant(), "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		data, err := fs.ReadFile(migrations.Tenant(), name)
		require.NoError(t, err)
		set[name] = &fstest.MapFile{Data: data}
	}
	return set
}

// A migration that can't run in a transaction is left to goose, and so are later ones.
func TestCreateLeavesMigrationsToGoose(t *testing.T) {
	t.Parallel()
	f, url := openFence(t)
	set := withMigration(t, `-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY more ON task_types (version);`)
	entered := func(pgx.Tx) error { t.Error("entered"); return nil }
	done, err := create(t.Context(), f.Conn(), set, newTenant{tenant: "acme"}, entered)
	require.NoError(t, err)
	require.False(t, done)
	status, err := MigrateOne(t.Context(), url, "tenant_acme", set, "")
	require.NoError(t, err)
	assert.Equal(t, LatestTenant(), status.Version)
	assert.Contains(t, describe(t, f.Conn(), "acme"),
		`CREATE INDEX more ON tenant_T.task_types USING btree (version)`)
}

// What fails leaves nothing.
func TestCreateIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	f, _ := openFence(t)
	set := withMigration(t, "-- +goose Up\nSELECT 1 / 0;")
	_, err := create(t.Context(), f.Conn(), set, newTenant{tenant: "acme"}, nothing)
	require.ErrorContains(t, err, "division by zero")
	assert.Empty(t, describe(t, f.Conn(), "acme"))
}

// Processes without roles have no fence between them: one of them makes the schema.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	_, url := openFence(t)
	var all sync.WaitGroup
	made := make(chan bool, 4)
	for range cap(made) {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		all.Go(func() {
			done, err := Create(t.Context(), conn, "acme", nothing)
			assert.NoError(t, err)
			made <- done
		})
	}
	all.Wait()
	close(made)
	count := 0
	for done := range made {
		if done {
			count++
		}
	}
	assert.Equal(t, 1, count)
}
