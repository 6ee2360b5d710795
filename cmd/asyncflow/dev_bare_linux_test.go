package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// bareMachine is a script that hides installed and fetched programs of Postgres, and then
// becomes the command. $1 is an empty folder, $2 the command's PATH.
const bareMachine = `
set -e
empty=$1 path=$2
shift 2
mount --make-rprivate /
mount -t tmpfs none /var/cache
for dir in /usr/lib/postgresql /usr/libexec/postgresql* /usr/pgsql-*; do
  if [ -d "$dir" ]; then mount --bind "$empty" "$dir"; fi
done
PATH=$path exec "$@"
`

// startBare starts asyncflow where Postgres is not installed and nothing was fetched. On
// its PATH are npm and node alone, if they are installed.
func startBare(t *testing.T, args ...string) *process {
	t.Helper()
	if os.Getenv("ASYNCFLOW_OFFLINE") != "" {
		t.Skip("ASYNCFLOW_OFFLINE is set")
	}
	try := exec.CommandContext(t.Context(), "unshare", "--mount", "mount", "-t", "tmpfs", "none",
		"/var/cache")
	if out, err := try.CombinedOutput(); err != nil {
		t.Skipf("only root may hide the installed Postgres: %v: %s", err, out)
	}
	path := t.TempDir()
	for _, name := range []string{"npm", "node"} {
		if program, err := exec.LookPath(name); err == nil {
			require.NoError(t, os.Symlink(program, filepath.Join(path, name)))
		}
	}
	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	bare := []string{"unshare", "--mount", "sh", "-c", bareMachine, "sh", t.TempDir(), path, self}
	return startWithin(t, 3*patience, nil, append(bare, args...)...) // it may fetch 23 MB
}

// unreachable matches the message if neither npm's registry nor the archive can be reached.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNRE|ETIMEDOUT|npm is not installed`)

// The first command of the README works on a machine with Go, and maybe npm, and nothing else.
func TestDevWithoutPostgres(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	dir := pgtest.Dir(t)
	p := startBare(t, "dev", "--addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--data="+dir)
	if p.url == "" && unreachable.MatchString(p.said()) {
		t.Skipf("nothing can be fetched here: %s", p.said())
	}
	require.NotEmpty(t, p.url, p.said())
	require.Contains(t, p.said(), "The programs of Postgres are not installed; fetching")
	require.Contains(t, p.said(), "/var/cache/asyncflow")
	var version string
	conn := connectTo(t, readDevFile(t, dir).DatabaseURL)
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW server_version").Scan(&version))
	require.True(t, strings.HasPrefix(version, "17."), version)
	require.Eventually(t,
		func() bool { return strings.Contains(p.said(), "samples tasks=8 succeeded=8") },
		patience, 20*time.Millisecond)
	p.signal(syscall.SIGINT)
	require.Zero(t, p.wait(), p.said())
}

// Offline, the same command prints one line that says what to do.
func TestDevWithoutPostgresOffline(t *testing.T) {
	t.Parallel()
	p := startBare(t, "dev", "--offline", "--addr=127.0.0.1:0", "--data="+pgtest.Dir(t))
	require.Equal(t, exitUnavailable, p.wait())
	_, line, _ := strings.Cut(p.said(), "asyncflow: ")
	for _, says := range []string{"initdb", "offline", "apt-get install postgresql", "--pg-bin",
		"DATABASE_URL",
		"docker compose"} {
		require.Contains(t, line, says)
	}
	require.Equal(t, 1, strings.Count(line, "\n"), line)
}
