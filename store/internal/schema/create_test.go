package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
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

func fence(ctx context.Context, url string) error {
	_, err := Migrate(ctx, url, false)
	return err
}

// A database and its copy share the roles of tenants of one name, and may make them at once.
func TestCopiesMakeTheirRolesAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	var copies []*RoleFence
	for range 4 {
		f, err := OpenRoleFence(t.Context(), pgtest.Database(t, fence))
		require.NoError(t, err)
		defer f.Close(context.Background())
		copies = append(copies, f)
	}
	for _, f := range copies {
		all.Go(func() {
			for i := range 50 {
				assert.NoError(t, f.need(t.Context(), f.RoleOf(fmt.Sprint("copied", i))))
			}
		})
	}
	all.Wait()
}

// describeSQL describes all that is in a schema, a line each.
const describeSQL = `
WITH s AS (SELECT * FROM pg_namespace WHERE nspname = $1),
  c AS (SELECT c.* FROM pg_class c JOIN s ON relnamespace = s.oid)
SELECT concat_ws(' ', 'schema', nspowner::regrole, nspacl) FROM s
UNION ALL SELECT concat_ws(' ', relkind, relname, relowner::regrole, relacl, reloptions,
  reltoastrelid > 0) FROM c
UNION ALL SELECT concat_ws(' ', 'column', relname,
  row_number() OVER (PARTITION BY attrelid, attnum > 0 ORDER BY attnum), attname,
  format_type(atttypid, atttypmod), attnotnull, attidentity, attacl, attstorage, attcompression,
    pg_get_expr(adbin, adrelid))
  FROM c JOIN pg_attribute ON attrelid = c.oid
    LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
  WHERE relkind = 'r' AND NOT attisdropped
UNION ALL SELECT concat_ws(' ', 'constraint', conname, pg_get_constraintdef(k.oid))
  FROM pg_constraint k JOIN s ON connamespace = s.oid
UNION ALL SELECT pg_get_indexdef(c.oid) FROM c WHERE relkind = 'i'
UNION ALL SELECT concat_ws(' ', pg_get_functiondef(p.oid), proowner::regrole, proacl)
  FROM pg_proc p JOIN s ON pronamespace = s.oid
UNION ALL SELECT pg_get_ruledef(r.oid) FROM pg_rewrite r JOIN c ON ev_class = c.oid
UNION ALL SELECT concat_ws(' ', 'sequence', c.relname, seqstart, seqincrement, seqmax, seqcycle)
  FROM pg_sequence JOIN c ON seqrelid = c.oid
UNION ALL SELECT concat_ws(' ', 'rows of', relname, query_to_xml(format('SELECT * FROM %s',
    CASE relname WHEN 'schema_versions'
        THEN format('(SELECT id, version_id, is_applied FROM %s) m', c.oid::regclass)
      WHEN 'numbering' THEN format('(SELECT first_number FROM %s) n', c.oid::regclass)
      WHEN 'expired_since' THEN format('(SELECT at IS NOT NULL FROM %s) e', c.oid::regclass)
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

// create creates a tenant's schema by the script.
func (f *RoleFence) create(ctx context.Context, tenant string, enter func() error) error {
	return pgx.BeginFunc(ctx, f.conn, func(tx pgx.Tx) error {
		return f.Create(ctx, tx, tenant, false, enter)
	})
}

// nothing enters nothing.
func nothing() error { return nil }

func TestANewSchemaIsAsMigrationsMakeIt(t *testing.T) {
	t.Parallel()
	f, url := openFence(t)
	require.NoError(t, f.create(t.Context(), "scripted", nothing))
	_, err := f.Conn().Exec(t.Context(), `CREATE SCHEMA tenant_stepwise`)
	require.NoError(t, err)
	_, err = f.Migrate(t.Context(), url, "stepwise")
	require.NoError(t, err)
	want, got := describe(t, f.Conn(), "stepwise"), describe(t, f.Conn(), "scripted")
	require.Greater(t, len(want), 200)
	for _, line := range without(want, got) {
		t.Errorf("the script lacks what goose makes of the migrations:\n%s", line)
	}
	for _, line := range without(got, want) {
		t.Errorf("the script makes what goose makes of no migration:\n%s", line)
	}
	var user, path string
	require.NoError(t, f.Conn().QueryRow(t.Context(),
		`SELECT current_user, current_setting('search_path')`).Scan(&user, &path))
	assert.Equal(t, f.user, user, "the connection is no tenant's in the end")
	assert.NotContains(t, path, "tenant_")
}

// without returns the lines that others don't have.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return slices.Contains(others, line)
	})
}

func TestCreateRefusesASchemaThatIsThere(t *testing.T) {
	t.Parallel()
	f, _ := openFence(t)
	require.NoError(t, f.create(t.Context(), "acme", nothing))
	err := f.create(t.Context(), "acme", func() error { t.Error("entered"); return nil })
	require.ErrorIs(t, err, ErrThere)
}

// What fails leaves nothing.
func TestCreateIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	f, _ := openFence(t)
	failed := errors.New("failed")
	require.ErrorIs(t, f.create(t.Context(), "acme", func() error { return failed }), failed)
	assert.Empty(t, describe(t, f.Conn(), "acme"))
	missing, err := f.missing(t.Context(), []string{f.RoleOf("acme")})
	require.NoError(t, err)
	assert.Equal(t, []missingRole{{f.RoleOf("acme"), false}}, missing)
}

// Processes without roles have no fence between them: one of them makes the schema.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	_, url := openFence(t)
	var all sync.WaitGroup
	made := make(chan error, 4)
	for range cap(made) {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		all.Go(func() {
			made <- pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				return Create(t.Context(), tx, "acme", false)
			})
		})
	}
	all.Wait()
	close(made)
	count := 0
	for err := range made {
		if err == nil {
			count++
		} else {
			assert.ErrorIs(t, err, ErrThere)
		}
	}
	assert.Equal(t, 1, count)
}
