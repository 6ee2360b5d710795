package schema

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// The migration that remembers who may submit by SQL finds the grants of before.
func TestGrantsOfBeforeAreRemembered(t *testing.T) {
	t.Parallel()
	f, url := openFence(t)
	exec := func(sql string) {
		t.Helper()
		_, err := f.Conn().Exec(context.WithoutCancel(t.Context()), sql)
		require.NoError(t, err)
	}
	exec(`INSERT INTO asyncflow.tenants (slug, schema_version) VALUES ('acme', 1), ('other', 1)`)
	for _, tenant := range []string{"acme", "other"} {
		require.NoError(t, f.create(t.Context(), tenant, nothing))
	}
	name := f.Conn().Config().Database + "-app"
	role := postgres.Quote(name)
	exec(`CREATE ROLE ` + role)
	exec(`GRANT USAGE ON SCHEMA tenant_acme TO ` + role)
	for _, tenant := range []string{"acme", "other"} { // the other one's schema is closed
		exec(`GRANT EXECUTE ON FUNCTION tenant_` + tenant + `.submit_task TO ` + role)
	}
	exec(`ALTER TABLE asyncflow.tenants DROP COLUMN submitters, DROP COLUMN submitter_ids;
		DROP TABLE asyncflow.tenant_trouble;
		DELETE FROM asyncflow.schema_versions WHERE version_id >= 17`)
	f.Close(t.Context())
	_, err := Migrate(t.Context(), url, false)
	require.NoError(t, err)
	f, err = OpenRoleFence(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close(context.Background()) })
	t.Cleanup(func() { exec(`DROP OWNED BY ` + role + `; DROP ROLE ` + role) })
	for tenant, want := range map[string][]string{"acme": {name}, "other": {}} {
		var got []string
		require.NoError(t, f.Conn().QueryRow(t.Context(),
			`SELECT submitters FROM asyncflow.tenants WHERE slug = $1`, tenant).Scan(&got))
		require.Equal(t, want, got, tenant)
		for _, name := range want {
			var same bool
			require.NoError(t, f.Conn().QueryRow(t.Context(), `SELECT submitter_ids ->> $2::text = `+
				SubmitterIDSQL+` FROM asyncflow.tenants WHERE slug = $1`, tenant, name).Scan(&same))
			require.True(t, same, name)
		}
	}
}

// The rights come back on functions that a migration has kept, and nobody else gets any, also on a
// procedure.
func TestRightsOnKeptFunctions(t *testing.T) {
	t.Parallel()
	f, _ := openFence(t)
	ctx := context.WithoutCancel(t.Context())
	exec := func(sql string) {
		t.Helper()
		_, err := f.Conn().Exec(ctx, sql)
		require.NoError(t, err)
	}
	exec(`INSERT INTO asyncflow.tenants (slug, schema_version) VALUES ('acme', 1)`)
	require.NoError(t, f.create(t.Context(), "acme", nothing))
	name := f.Conn().Config().Database + "-app"
	role := postgres.Quote(name)
	exec(`CREATE ROLE ` + role)
	t.Cleanup(func() { exec(`DROP OWNED BY ` + role + `; DROP ROLE ` + role) })
	owner := postgres.Quote(f.RoleOf("acme"))
	exec(`SET ROLE ` + owner + `; CREATE FUNCTION tenant_acme.submit_task_10() RETURNS text
		LANGUAGE sql AS 'SELECT NULL::text';
		CREATE PROCEDURE tenant_acme.some() LANGUAGE sql AS ''; RESET ROLE`)
	_, err := f.Conn().Exec(ctx, `UPDATE asyncflow.tenants SET submitters = ARRAY[$2::text],
		submitter_ids = jsonb_build_object($2::text, `+SubmitterIDSQL+`) WHERE slug = $1`, "acme", name)
	require.NoError(t, err)
	restored, err := RestoreRights(ctx, f.Conn(), "acme", f.RoleOf("acme"))
	require.NoError(t, err)
	require.Len(t, restored, 6, restored) // for the role: the schema and three functions
	var may, open int
	require.NoError(t, f.Conn().QueryRow(ctx, `SELECT
		count(*) FILTER (WHERE has_function_privilege($1, oid, 'EXECUTE')),
		count(*) FILTER (WHERE proacl IS NULL OR proacl::text ~ '[{,]=')
		FROM pg_proc WHERE pronamespace = 'tenant_acme'::regnamespace`, name).Scan(&may, &open))
	require.Equal(t, 3, may)
	require.Zero(t, open)
	restored, err = RestoreRights(ctx, f.Conn(), "acme", f.RoleOf("acme"))
	require.NoError(t, err)
	require.Empty(t, restored)
}
