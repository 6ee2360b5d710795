package pgtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// What a process makes of initdb, the next one finds in the cache directory, as often as it likes.
func TestEmptyClusterIsKept(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	made, err := pgtest.EmptyClusterIn(cache)
	require.NoError(t, err)
	kept, err := os.ReadDir(filepath.Join(cache, "asyncflow"))
	require.NoError(t, err)
	require.Len(t, kept, 1, "nothing is left behind")
	for range 2 {
		found, err := pgtest.EmptyClusterIn(cache)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(cache, "asyncflow", kept[0].Name()), found)
		require.NotEqual(t, made, found)
		dir := pgtest.Dir(t)
		require.NoError(t, pgtest.CopyCluster(found, dir))
		server := pgtest.Server(t, devpg.Config{DataDir: dir})
		connect(t, server.URL("postgres"))
	}
	alone, err := pgtest.EmptyClusterIn("")
	require.NoError(t, err)
	require.DirExists(t, filepath.Join(alone, "pgdata"))
}
