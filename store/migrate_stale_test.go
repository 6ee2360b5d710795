package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A start migrates only the tenants that need it.
func TestMigrateStale(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := pgtest.Database(t, nil)
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	for _, name := range []string{tenant, "other"} {
		_, err := store.CreateTenant(t.Context(), url, name)
		require.NoError(t, err)
	}
	b := open(t, url, "node-1")
	migrated := func() (schemas []string) {
		all, err := store.Migrate(t.Context(), url, store.StaleOnly())
		require.NoError(t, err)
		for _, one := range all {
			schemas = append(schemas, one.Schema)
		}
		return schemas
	}
	assert.Equal(t, []string{"asyncflow"}, migrated())
	for name, change := range map[string]string{
		"another version": `UPDATE asyncflow.tenants SET schema_version = 0 WHERE slug = 'acme'`,
		"no role":         `UPDATE asyncflow.tenants SET role = NULL WHERE slug = 'acme'`,
		"other grants":    `UPDATE asyncflow.tenants SET grants = 'x' WHERE slug = 'acme'`,
		"unknown grants":  `UPDATE asyncflow.tenants SET grants = NULL WHERE slug = 'acme'`,
		"another owner":   `ALTER SCHEMA tenant_acme OWNER TO CURRENT_USER`,
		"a table's owner": `ALTER TABLE tenant_acme.tallies OWNER TO CURRENT_USER`,
	} {
		b.exec(change)
		assert.Equal(t, []string{"asyncflow", "tenant_acme"}, migrated(), name)
		assert.Equal(t, []string{"asyncflow"}, migrated(), name)
	}
	b.exec(`REVOKE USAGE ON SCHEMA tenant_acme FROM ` + b.prefix())
	assert.Equal(t, []string{"asyncflow", "tenant_acme"}, migrated(), "no right to the schema")
	b.exec(`UPDATE asyncflow.tenants SET schema_version = 1000, grants = 'x' WHERE slug = 'acme'`)
	assert.Equal(t, []string{"asyncflow"}, migrated(), "a newer version")
	b.exec(`UPDATE asyncflow.tenants SET schema_version = 0 WHERE slug = 'acme'`)
	migrated()
	var granted bool
	b.exec(`REVOKE SELECT (at) ON tenant_acme.tallies FROM ` + b.prefix())
	b.exec(`UPDATE asyncflow.tenants SET grants = NULL WHERE slug = 'acme'`)
	migrated()
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT has_column_privilege($1, 'tenant_acme.tallies', 'at', 'SELECT')`, b.prefix()).
		Scan(&granted))
	assert.True(t, granted)

	_, err = store.Migrate(t.Context(), url, store.StaleOnly(), store.WithoutRoles(true))
	require.NoError(t, err)
	b.exec(`UPDATE asyncflow.tenants SET schema_version = 0 WHERE slug = 'other'`)
	all, err := store.Migrate(t.Context(), url, store.StaleOnly(), store.WithoutRoles(true))
	require.NoError(t, err)
	assert.Len(t, all, 2)
	assert.Equal(t, []string{"asyncflow", "tenant_other"}, migrated(), "migrated without roles")
}

// prefix returns the name of the base role.
func (b *bundle) prefix() (name string) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(),
		`SELECT prefix FROM asyncflow.fence`).Scan(&name))
	return name
}
