package pgtest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keptCluster returns a cache and the cluster that a process has kept there.
func keptCluster(t *testing.T) (cache, kept string) {
	t.Helper()
	cache = filepath.Join(pgtest.Dir(t), "cache") // in memory: it is synced, too
	made, found, err := pgtest.NewEmptyCluster(cache).Get()
	require.NoError(t, err)
	require.False(t, found)
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left behind")
	kept = filepath.Join(cache, entries[0].Name())
	require.NotEqual(t, made, kept)
	return cache, kept
}

// requireFound fails unless the next process finds the cluster, or doesn't.
func requireFound(t *testing.T, want bool, cache, kept string) {
	t.Helper()
	dir, found, err := pgtest.NewEmptyCluster(cache).Get()
	require.NoError(t, err)
	require.DirExists(t, filepath.Join(dir, "pgdata"))
	require.Equal(t, want, found)
	require.Equal(t, want, dir == kept)
}

// requireStarts fails unless a process with this cache starts a server.
func requireStarts(t *testing.T, cache string) {
	t.Helper()
	server, err := pgtest.NewEmptyCluster(cache).Start(t.Context(),
		devpg.Config{DataDir: pgtest.Dir(t), Offline: true})
	require.NoError(t, err)
	connect(t, server.URL("postgres"))
	require.NoError(t, server.Stop(t.Context()))
}

// What a process makes of initdb, the next one finds in the cache directory, as often as it likes.
func TestEmptyClusterIsKept(t *testing.T) {
	t.Parallel()
	cache, kept := keptCluster(t)
	for range 2 {
		requireFound(t, true, cache, kept)
		requireStarts(t, cache)
	}
	requireFound(t, false, "", kept)
}

// A kept cluster that lacks a file, or a part of one, is made anew: a cleaner of caches may have
// removed it, or a power cut.
func TestKeptClusterLacksAFile(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	cache, kept := keptCluster(t)
	version := filepath.Join(kept, "pgdata", "base", "1", "PG_VERSION")
	for _, spoil := range []func() error{
		func() error { return os.Remove(version) },
		func() error { return os.Truncate(version, 0) },
	} {
		require.NoError(t, spoil())
		requireFound(t, false, cache, kept)
		requireFound(t, true, cache, kept)
	}
}

// A kept cluster that no server starts from is made anew, once.
func TestKeptClusterIsBroken(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	cache, kept := keptCluster(t)
	control := filepath.Join(kept, "pgdata", "global", "pg_control")
	intact, err := os.ReadFile(control)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(control, make([]byte, len(intact)), 0o600))
	requireFound(t, true, cache, kept)
	requireStarts(t, cache)
	now, err := os.ReadFile(control)
	require.NoError(t, err)
	assert.False(t, bytes.Equal(now, make([]byte, len(now))), "there is a new one")
	requireFound(t, true, cache, kept)
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "the broken one is gone")
}

// A cluster that another user may have written isn't used: its settings name programs. It is left
// alone, and so is what another user may replace.
func TestKeptClusterOfOthers(t *testing.T) {
	t.Parallel()
	cache, kept := keptCluster(t)
	for _, path := range []string{cache, kept} {
		for _, mode := range []os.FileMode{0o770, 0o707, 0o755} {
			require.NoError(t, os.Chmod(path, mode))
			require.False(t, pgtest.Usable(kept), "%s %o", path, mode)
		}
		requireFound(t, false, cache, kept)
		require.NoError(t, os.Chmod(path, 0o700))
		require.True(t, pgtest.Usable(kept))
		moved := filepath.Join(pgtest.Dir(t), "moved")
		require.NoError(t, os.Rename(path, moved))
		require.NoError(t, os.Symlink(moved, path))
		require.False(t, pgtest.Usable(kept), "%s is a link", path)
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Rename(moved, path))
		if os.Geteuid() == 0 { // nobody else can give it away
			require.NoError(t, os.Chown(path, 12345, 12345))
			require.False(t, pgtest.Usable(kept), "%s is another user's", path)
			require.NoError(t, os.Chown(path, 0, 0))
		}
	}
	requireFound(t, true, cache, kept)
}

// Few clusters stay, the ones used last. What a process was making when it ended goes, too.
func TestOldClustersAreRemoved(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	for hours := range pgtest.MostKept + 3 {
		for _, prefix := range []string{"cluster-", "new-"} {
			name := filepath.Join(cache, prefix+strconv.Itoa(hours))
			require.NoError(t, os.MkdirAll(filepath.Join(name, "pgdata"), 0o700))
			at := time.Now().Add(-time.Duration(hours) * time.Hour)
			require.NoError(t, os.Chtimes(name, at, at))
		}
	}
	require.NoError(t, pgtest.RemoveOld(cache))
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	assert.Equal(t, []string{"cluster-0", "cluster-1", "cluster-2", "cluster-3", "new-0"}, left)
}
