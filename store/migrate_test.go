package store_test

import (
	"io/fs"
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
	assert.Equal(t, []store.MigrationStatus{{Schema: "asyncflow", Version: 0, Latest: 1}}, status)
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
	assert.Equal(t, []store.MigrationStatus{{Schema: "asyncflow", Version: 1, Latest: 1}, {Schema: "tenant_acme", Version: 4, Latest: 4}}, status)

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

// The tables of task types that an earlier version made are brought up to date too.
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
		INSERT INTO tenant_acme.task_types VALUES ('a-type', 1, '{"stages":[{"name":"only"}]}', 1, 1, 2, now(), now());
		INSERT INTO tenant_acme.rolls VALUES ('a-type', 1, 1, now()), ('a-type', 2, 1, now());
		CREATE TABLE tenant_acme."journal_a-type_1" (id bigint, final text CHECK (final IN ('failed')), outcome text NOT NULL CHECK (outcome IN ('done', 'failed')));
		CREATE TABLE tenant_acme."journal_a-type_2" (LIKE tenant_acme."journal_a-type_1" INCLUDING ALL)`)
	require.NoError(t, err)
	_, err = store.Migrate(t.Context(), url)
	require.NoError(t, err)
	for _, table := range []string{"journal_a-type_1", "journal_a-type_2"} {
		insert := `INSERT INTO tenant_acme.` + pgx.Identifier{table}.Sanitize()
		_, err = conn.Exec(t.Context(), insert+` (id, outcome, options) VALUES (1, 'changed', '{}')`)
		require.NoError(t, err)
		for _, wrong := range []string{` (id, outcome) VALUES (1, 'nonsense')`, ` (id, outcome, final) VALUES (1, 'done', 'nonsense')`} {
			_, err = conn.Exec(t.Context(), insert+wrong)
			require.ErrorContains(t, err, "check constraint")
		}
	}
}
