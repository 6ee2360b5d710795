package store_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store"
)

// migrationsBefore returns the migrations of tenants before one.
func migrationsBefore(t *testing.T, next string) fs.FS {
	t.Helper()
	set := fstest.MapFS{}
	names, err := fs.Glob(migrations.Tenant(), "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		if name < next {
			data, err := fs.ReadFile(migrations.Tenant(), name)
			require.NoError(t, err)
			set[name] = &fstest.MapFile{Data: data}
		}
	}
	return set
}

// A schema that is migrated from a version before ends with the functions of a new one, also if its
// submit_task is of another text than in the program of that version.
func TestSubmitTaskIsTheSameAfterEachMigration(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare) // with tenant_acme
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `CREATE SCHEMA tenant_old`)
	require.NoError(t, err)
	_, err = store.MigrateSchema(t.Context(), url, "tenant_old", migrationsBefore(t, "00033"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `DO $$ BEGIN EXECUTE replace(
		pg_get_functiondef('tenant_old.submit_task'::regproc), 'flow_key := NULL;',
		'flow_key := NULL; -- none'); END $$`)
	require.NoError(t, err)
	_, err = store.MigrateSchema(t.Context(), url, "tenant_old", migrations.Tenant())
	require.NoError(t, err)
	functions := func(schema string) map[string]string {
		rows, _ := conn.Query(t.Context(), `SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid)
			FROM pg_proc p WHERE pronamespace = $1::text::regnamespace`, schema)
		all := map[string]string{}
		var name, text string
		_, err := pgx.ForEachRow(rows, []any{&name, &text}, func() error {
			all[strings.ReplaceAll(name, schema, "")] = strings.ReplaceAll(text, schema, "")
			return nil
		})
		require.NoError(t, err)
		return all
	}
	require.Equal(t, functions("tenant_acme"), functions("tenant_old"))
}
