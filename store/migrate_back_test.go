package store_test

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store"
)

// shapeOf returns the functions, columns and constraints of a tenant's schema, except those of
// the task types' tables.
func (b *bundle) shapeOf(schema string) []string {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `
		SELECT replace(p.proname || pg_get_function_arguments(p.oid)
		  || pg_get_function_result(p.oid) || p.prosecdef
		  || coalesce(p.proconfig::text, '') || p.prosrc, $1, 'SCHEMA') AS what
		FROM pg_proc p WHERE p.pronamespace = $1::regnamespace
		UNION ALL
		SELECT concat_ws(' ', c.relname, a.attname, a.atttypid::regtype, a.attnotnull)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'S') AND a.attnum > 0
		  AND NOT a.attisdropped AND c.relname !~ '_pipe'
		UNION ALL
		SELECT r.relname || replace(pg_get_constraintdef(c.oid), $1, 'SCHEMA')
		FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
		WHERE c.connamespace = $1::regnamespace AND r.relname !~ '_pipe'
		ORDER BY 1`, schema)
	require.NoError(b.t, err)
	shape, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	require.NotEmpty(b.t, shape)
	return shape
}

// A tenant with tasks in all tables is migrated back to the schema before histories, keys that
// are set aside, times of rolls and refusals, and forth again. Nothing is lost on the way.
func TestMigrateBackAndForth(t *testing.T) {
	const before, baseBefore = 13, 5
	b := setup(t)
	role, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	early := fstest.MapFS{}
	names, err := fs.Glob(migrations.Tenant(), "*.sql")
	require.NoError(t, err)
	for _, name := range names[:before] {
		data, err := fs.ReadFile(migrations.Tenant(), name)
		require.NoError(t, err)
		early[name] = &fstest.MapFile{Data: data}
	}
	_, err = store.MigrateSchema(t.Context(), b.url, "tenant_early", early)
	require.NoError(t, err)

	b.put(twoStages())
	later := newTask(`"later"`)
	later.Delay = asyncflow.Duration(time.Hour)
	cancelled := b.submit(later)[0].ID
	b.rollAndClear()
	pipe := b.known()
	ahead := newTask(`"ahead"`)
	ahead.Options.Priority = asyncflow.Priority{3600}
	ids := []asyncflow.TaskID{}
	for _, r := range b.submit(ahead, later, withKey("k", `1`), newTask(`2`)) {
		ids = append(ids, r.ID)
	}
	leases := b.lease(pipe, 1)
	require.Len(t, leases, 1)
	latest, app := b.shapeOf("tenant_acme"), b.app()

	for range 2 {
		require.NoError(t, store.MigrateTenantDownTo(t.Context(), b.url, tenant, role, before))
		require.NoError(t, store.MigrateDownTo(t.Context(), b.url, baseBefore))
		assert.Equal(t, b.shapeOf("tenant_early"), b.shapeOf("tenant_acme"))
		id, err := b.bySQL(app, `'pipe', '3', key => 'by-sql', priority => 60`)
		require.NoError(t, err)
		again, err := b.bySQL(app, `'pipe', '1', key => 'k'`)
		require.NoError(t, err)
		assert.Equal(t, ids[2], again)
		if len(ids) == 4 {
			ids = append(ids, id)
		}
		assert.Equal(t, ids[4], id)
		_, err = store.Migrate(t.Context(), b.url)
		require.NoError(t, err)
		assert.Equal(t, latest, b.shapeOf("tenant_acme"))
	}
	again, err := b.bySQL(app, `'pipe', '3', key => 'by-sql', priority => 60`)
	require.NoError(t, err)
	assert.Equal(t, ids[4], again)
	r := b.submit(withKey("k", `1`))[0]
	assert.True(t, r.Existing)
	assert.Equal(t, ids[2], r.ID)
	var head int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.ready_2 WHERE since IS NOT NULL`).Scan(&head))
	assert.Equal(t, 1, head, "of a head start by priority; the other one is leased")
	require.NoError(t, b.settle(pipe, leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone}).Err)
	_, err = b.Cancel(t.Context(), tenant, cancelled, "")
	require.NoError(t, err)
	b.idle(true)
	for _, id := range ids {
		_, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
	}
}
