//go:build linux || darwin

package devpg_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func connect(t *testing.T, server *devpg.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, server *devpg.Server, statement string) {
	t.Helper()
	_, err := connect(t, server).Exec(t.Context(), statement)
	require.NoError(t, err)
}

func show(t *testing.T, server *devpg.Server, setting string) string {
	t.Helper()
	var value string
	require.NoError(t, connect(t, server).QueryRow(t.Context(), "SELECT current_setting($1)",
		setting).Scan(&value))
	return value
}

func TestStoppedServerStartsWarm(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{Durable: true})
	exec(t, server, "CREATE TABLE kept AS SELECT 'a row' AS text")
	require.NoError(t, server.Stop(t.Context()))
	<-server.Done()
	require.NoError(t, server.Err(), "asked to end")
	require.NoError(t, server.Stop(t.Context()), "gone already")

	again := pgtest.Server(t, server.Config())

	require.Equal(t, server.URL("x"), again.URL("x"), "same port, same password")
	var text string
	require.NoError(t, connect(t, again).QueryRow(t.Context(), "SELECT text FROM kept").Scan(&text))
	require.Equal(t, "a row", text)
}

func TestKilledServerStartsAgain(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{Durable: true})
	exec(t, server, "CREATE TABLE kept ()")
	connect(t, server)

	require.NoError(t, server.Kill())

	require.Empty(t, processesIn(t, server.Config().DataDir))
	require.FileExists(t, filepath.Join(server.Config().DataDir, "pgdata", "postmaster.pid"),
		"it was no orderly end")
	require.NoError(t, server.Kill(), "gone already")
	exec(t, pgtest.Server(t, server.Config()), "TABLE kept")
}

func TestKillEndsABusyBackend(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	config, err := pgx.ParseConfig(server.URL("postgres"))
	require.NoError(t, err)
	busy, cut := make(chan struct{}), make(chan error)
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { close(busy) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	go func() {
		// A backend in a loop doesn't notice that the main process is gone.
		_, err := conn.Exec(t.Context(), "DO $$ BEGIN RAISE NOTICE 'busy'; LOOP END LOOP; END $$")
		cut <- err
	}()
	<-busy

	require.NoError(t, server.Kill())

	require.Error(t, <-cut)
	require.Empty(t, processesIn(t, server.Config().DataDir))
}

func TestStalePidOfAnotherProgramDoesNotHinder(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	pidFile := filepath.Join(server.Config().DataDir, "pgdata", "postmaster.pid")
	require.NoError(t, server.Kill())
	text, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	other := sleeper(t, server.Config().DataDir)
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	require.NoError(t, os.WriteFile(pidFile, append([]byte(other+"\n"), rest...), 0o600))

	pgtest.Server(t, server.Config())
}

func TestServerThatEndsByItselfSaysHow(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	require.NoError(t, server.Err())

	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGQUIT))

	<-server.Done()
	require.ErrorContains(t, server.Err(), "received immediate shutdown request")
}

func TestStopGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(server.PID(), syscall.SIGCONT) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	require.ErrorIs(t, server.Stop(ctx), context.Canceled)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	server := pgtest.Server(t, devpg.Config{Log: &log,
		Settings: map[string]string{"max_connections": "17"}})

	require.Equal(t, "17", show(t, server, "max_connections"), "the caller's setting wins")
	require.Equal(t, "off", show(t, server, "fsync"))
	require.Equal(t, "UTC", show(t, server, "timezone"))
	require.Equal(t, "UTF8", show(t, server, "server_encoding"))
	require.NoError(t, server.Stop(t.Context()))
	<-server.Done()
	require.Contains(t, log.String(), "ready to accept connections")
}

func TestDurableSettings(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{Durable: true})

	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes",
		"data_checksums"} {
		require.Equal(t, "on", show(t, server, setting), setting)
	}
	require.Equal(t, "200", show(t, server, "max_connections"))
}

func TestPasswordIsNeededAndPrivate(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	config, err := pgx.ParseConfig(server.URL("postgres"))
	require.NoError(t, err)

	config.Password = "a guess"
	_, err = pgx.ConnectConfig(t.Context(), config)

	require.ErrorContains(t, err, "password authentication failed")
	info, err := os.Stat(filepath.Join(server.Config().DataDir, "password"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	config, err := pgx.ParseConfig(server.URL("postgres"))
	require.NoError(t, err)

	config.Host = filepath.Join(server.Config().DataDir, "socket")
	conn, err := pgx.ConnectConfig(t.Context(), config)

	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

func TestEnsureDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	for range 2 {
		require.NoError(t, server.EnsureDatabase(t.Context(), `odd "name`))
	}
	conn, err := pgx.Connect(t.Context(), server.URL(`odd "name`))
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}
