package migrations

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A new tenant gets all migrations in order.
func TestScriptHasEachMigration(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "CREATE TABLE a ();\nCREATE TABLE b ();\n", script(fstest.MapFS{
		"00002_b.sql": &fstest.MapFile{Data: []byte("CREATE TABLE b ();\n")},
		"00001_a.sql": &fstest.MapFile{Data: []byte("CREATE TABLE a ();\n")},
	}))
}

// In the script of a new tenant, goose's annotations are only comments.
func TestTenantMigrationsOnlyGoUp(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(Tenant(), "*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := fs.ReadFile(Tenant(), name)
			require.NoError(t, err)
			assert.NotContains(t, string(data), "+goose Down")
			assert.NotContains(t, string(data), "+goose NO TRANSACTION")
		})
	}
}
