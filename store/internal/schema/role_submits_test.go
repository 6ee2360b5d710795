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
	exec(`ALTER TABLE asyncflow.tenants DROP COLUMN submitters;
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
	}
}
