package pgfetch

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A full disk is named as such, and nothing is left on it.
func TestFetchWithoutSpace(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	if err := syscall.Mount("none", parent, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("only root may mount a small disk: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(parent, 0)) })
	dir := filepath.Join(parent, "cache")
	require.NoError(t, os.Mkdir(dir, 0o755))
	f, npm := npmOnly(t, Config{Dir: dir})

	_, err := f.fetch(t.Context(), npm)

	if err != nil && unreachable.MatchString(err.Error()) {
		t.Skipf("npm can't fetch here: %v", err)
	}
	require.ErrorContains(t, err, "ENOSPC")
	require.NotErrorIs(t, err, errDamaged)
	onlyComplete(t, dir)
}
