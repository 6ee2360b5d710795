package store_test

import (
	"testing"

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
	b := earlier(t)
	_, err := store.MigrateSchema(t.Context(), b.url, "tenant_early", migrationsTo(t, before))
	require.NoError(t, err)
	stands := b.earlierTasks()
	app := b.app()
	keyed, err := b.bySQL(app, `'pipe', '1', key => 'k'`)
	require.NoError(t, err)
	ahead, err := b.bySQL(app, `'pipe', '2', priority => 3600`)
	require.NoError(t, err)
	latest := b.shapeOf("tenant_acme")

	var bySQL asyncflow.TaskID
	for n := range 2 {
		require.NoError(t, store.MigrateTenantDownTo(t.Context(), b.url, tenant, "", before))
		require.NoError(t, store.MigrateDownTo(t.Context(), b.url, baseBefore))
		assert.Equal(t, b.shapeOf("tenant_early"), b.shapeOf("tenant_acme"))
		id, err := b.bySQL(app, `'pipe', '3', key => 'by-sql', priority => 60`)
		require.NoError(t, err)
		again, err := b.bySQL(app, `'pipe', '1', key => 'k'`)
		require.NoError(t, err)
		assert.Equal(t, keyed, again)
		if n == 0 {
			bySQL = id
		}
		assert.Equal(t, bySQL, id)
		_, err = store.MigrateSchema(t.Context(), b.url, "asyncflow", migrations.Asyncflow())
		require.NoError(t, err)
		b.migrateTo(18)
		assert.Equal(t, latest, b.shapeOf("tenant_acme"))
	}
	assert.Equal(t, 2, b.count(
		`SELECT count(*) FROM tenant_acme.ready_pipe_3 WHERE since IS NOT NULL`), "of head starts")
	b = b.migrated()
	again, err := b.bySQL(app, `'pipe', '3', key => 'by-sql', priority => 60`)
	require.NoError(t, err)
	assert.Equal(t, bySQL, again)
	r := b.submit(withKey("k", `1`))[0]
	assert.True(t, r.Existing)
	assert.Equal(t, keyed, r.ID)
	for id, status := range stands {
		assert.Equal(t, status, b.task(id).Status)
	}
	assert.Equal(t, asyncflow.StatusPending, b.task(ahead).Status)
	assert.Equal(t, asyncflow.StatusPending, b.task(bySQL).Status)
}
