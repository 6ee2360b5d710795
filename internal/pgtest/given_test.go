package pgtest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const countTestDatabases = "SELECT count(*) FROM pg_database WHERE starts_with(datname, " +
	"'asyncflow_test_')"

func TestGivenServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	conn := connect(t, server.URL("postgres"))
	for range 2 {
		runWithGivenServer(t, server.URL("postgres"))

		var left int
		require.NoError(t, conn.QueryRow(t.Context(), countTestDatabases).Scan(&left))
		require.Equal(t, 1, left, "the template of this run alone: those of earlier ones are "+
			"dropped")
		require.NoError(t, conn.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_roles WHERE starts_with(rolname, 'asyncflow_')").Scan(&left))
		require.Equal(t, 1, left, "and so are their roles")
	}
}

// runWithGivenServer runs TestDatabaseIsDroppedAfterTheTest in another process that uses the
// server.
func runWithGivenServer(t *testing.T, url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^TestDatabaseIsDroppedAfterTheTest$")
	cmd.Env = append(os.Environ(), "ASYNCFLOW_TEST_DATABASE_URL="+url)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestServerStartsAgainWithItsConfig(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{Durable: true})
	url := server.URL("postgres")
	_, err := connect(t, url).Exec(t.Context(), "CREATE TABLE kept ()")
	require.NoError(t, err)
	require.NoError(t, server.Kill())
	_, err = pgx.Connect(t.Context(), url)
	require.Error(t, err, "killed")

	pgtest.Server(t, server.Config())

	_, err = connect(t, url).Exec(t.Context(), "TABLE kept")
	require.NoError(t, err)
}
