//go:build linux || darwin

package devpg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/stretchr/testify/require"
)

// locked returns a data directory locked by this process, with a server that is this process
// itself, in the given status.
func locked(t *testing.T, status string) layout {
	t.Helper()
	l := layout(t.TempDir())
	require.NoError(t, os.Mkdir(l.pgdata(), 0o700))
	text := fmt.Sprintf("%d%s%s\n", os.Getpid(), strings.Repeat("\n", 7), status)
	require.NoError(t, os.WriteFile(filepath.Join(l.pgdata(), "postmaster.pid"), []byte(text),
		0o600))
	lock, err := l.tryLock()
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	return l
}

func TestAcquireGivesUpOnAServerAtWork(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	_, err := locked(t, "ready   ").acquire(ctx)

	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.NoError(t, ctx.Err(), "long before its deadline")
}

func TestAcquireWaitsForAServerThatStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*lockPatience)
	defer cancel()

	_, err := locked(t, "stopping").acquire(ctx)

	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.Error(t, ctx.Err(), "as long as it may")
}
