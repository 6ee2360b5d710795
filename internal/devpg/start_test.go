//go:build linux || darwin

package devpg_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// startError returns the error of a start that must fail, with its code checked.
func startError(t *testing.T, cfg devpg.Config, code asyncflow.Code) string {
	t.Helper()
	server, err := devpg.Start(t.Context(), cfg)
	if err == nil {
		_ = server.Kill()
	}
	require.Error(t, err)
	require.Equal(t, code, asyncflow.CodeOf(err), err.Error())
	return err.Error()
}

func TestOtherMajorIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	require.NoError(t, server.Stop(t.Context()))
	pgdata := filepath.Join(server.Config().DataDir, "pgdata")
	version := filepath.Join(pgdata, "PG_VERSION")
	original, err := os.ReadFile(version)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(version, []byte("9\n"), 0o600))

	message := startError(t, server.Config(), asyncflow.CodeConflict)

	require.Contains(t, message, "cluster of Postgres 9")
	require.FileExists(t, filepath.Join(pgdata, "global", "pg_control"))
	require.NoError(t, os.WriteFile(version, original, 0o600))
	pgtest.Server(t, server.Config())
}

// Data remains usable when another version of Postgres is installed later.
func TestDataOfAVersionThatIsNotInstalled(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	first, err := devpg.Start(t.Context(), devpg.Config{DataDir: dir, Major: 18})
	if asyncflow.CodeOf(err) == asyncflow.CodeUnavailable {
		t.Skipf("Postgres 18 is neither installed nor can it be fetched: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, first.Stop(t.Context()))

	again := pgtest.Server(t, devpg.Config{DataDir: dir, Major: 17, Offline: true})

	require.Equal(t, "18", strings.Split(show(t, again, "server_version"), ".")[0])
}

func TestVersionThatNobodyHas(t *testing.T) {
	t.Parallel()
	message := startError(t, devpg.Config{DataDir: pgtest.Dir(t), Major: 9},
		asyncflow.CodeUnavailable)
	require.Contains(t, message, "of version 9 are not installed")
}

func TestOfflineFetchesNothing(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	for _, major := range []int{16, 18} { // at least one of them is not installed
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			cfg := devpg.Config{DataDir: pgtest.Dir(t), Major: major, Offline: true,
				CacheDir: cache}
			if server, err := devpg.Start(t.Context(), cfg); err == nil {
				require.NoError(t, server.Stop(t.Context()))
			} else {
				require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
				require.ErrorContains(t, err, "of version "+strconv.Itoa(major)+
					" are not installed on this machine, and offline")
				require.ErrorContains(t, err, "apt-get install postgresql")
			}
		})
	}
	require.NoDirExists(t, cache)
}

// A failed fetch is one line that says why, and what to do instead.
func TestProgramsThatCantBeFetched(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "file", "cache")
	require.NoError(t, os.WriteFile(filepath.Dir(cache), nil, 0o600))
	for _, major := range []int{16, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			server, err := devpg.Start(t.Context(),
				devpg.Config{DataDir: pgtest.Dir(t), Major: major, CacheDir: cache})
			if err == nil {
				require.NoError(t, server.Stop(t.Context()))
				return
			}
			require.ErrorContains(t, err, "can't be fetched")
			require.ErrorContains(t, err, "not a directory")
			require.ErrorContains(t, err, "docker compose up")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestForeignFilesAreRefusedAndKept(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	precious := filepath.Join(dir, "pgdata", "precious")
	require.NoError(t, os.Mkdir(filepath.Dir(precious), 0o755))
	require.NoError(t, os.WriteFile(precious, nil, 0o600))

	require.Contains(t, startError(t, devpg.Config{DataDir: dir}, asyncflow.CodeConflict),
		"no Postgres cluster")

	require.FileExists(t, precious)
}

func TestNoProgramsNamesAPackage(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()

	message := startError(t, devpg.Config{DataDir: pgtest.Dir(t), BinDir: empty},
		asyncflow.CodeUnavailable)

	for _, want := range []string{empty, "apt-get install postgresql", "dnf install",
		"brew install", "--pg-bin", "DATABASE_URL", "docker compose"} {
		require.Contains(t, message, want)
	}
	require.NotContains(t, message, "\n")
}

func TestInUseNamesThePid(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	cfg := server.Config()
	cfg.Port = 0

	message := startError(t, cfg, asyncflow.CodeConflict)

	require.Contains(t, message, "pid "+strconv.Itoa(server.PID()))
	exec(t, server, "SELECT 1")
}

func TestInUseByAServerStartedWithoutUs(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	cfg := server.Config()
	// Without its name, the lock is a new one, as if the server had been started by hand.
	require.NoError(t, os.Remove(filepath.Join(cfg.DataDir, "lock")))

	message := startError(t, cfg, asyncflow.CodeConflict)

	require.Contains(t, message, "pid "+strconv.Itoa(server.PID()))
	exec(t, server, "SELECT 1")
}

func TestHalfFinishedInitdbDoesNotHinder(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	half := filepath.Join(dir, "pgdata.new-1")
	require.NoError(t, os.Mkdir(half, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), []byte("half"), 0o600))

	pgtest.Server(t, devpg.Config{DataDir: dir})

	require.NoDirExists(t, half)
}

func TestCancelledStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	dir := pgtest.Dir(t)
	log := writerFunc(func(p []byte) (int, error) {
		cancel() // the server is up, but not ready
		return len(p), nil
	})

	_, err := devpg.Start(ctx, devpg.Config{DataDir: dir, Log: log})

	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, processesIn(t, dir))
	pgtest.Server(t, devpg.Config{DataDir: dir})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestEarlyExitShowsTheLog(t *testing.T) {
	t.Parallel()
	message := startError(t, devpg.Config{DataDir: pgtest.Dir(t),
		Settings: map[string]string{"no_such_setting": "1"}}, asyncflow.CodeUnavailable)

	require.Contains(t, message, `unrecognized configuration parameter "no_such_setting"`)
}

func TestTakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port

	message := startError(t, devpg.Config{DataDir: pgtest.Dir(t), Port: port},
		asyncflow.CodeUnavailable)

	require.Contains(t, message, "the port is taken")
}

func TestLongPathHasNoSocketButWorks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(pgtest.Dir(t), strings.Repeat("long/", 20))

	pgtest.Server(t, devpg.Config{DataDir: dir})

	require.NoDirExists(t, filepath.Join(dir, "socket"))
}

func TestDirectoryThatTheServersUserCantEnter(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as someone else")
	}
	closed := filepath.Join(pgtest.Dir(t), "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))

	message := startError(t, devpg.Config{DataDir: filepath.Join(closed, "data")},
		asyncflow.CodeInvalid)

	require.Contains(t, message, "may not enter "+closed+";")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.Contains(t, startError(t, devpg.Config{}, asyncflow.CodeInvalid), "data_dir")
	require.Contains(t, startError(t, devpg.Config{DataDir: t.TempDir(), Port: 70000},
		asyncflow.CodeInvalid), "port")
}
