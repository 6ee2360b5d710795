package pgtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// Dir returns a directory for a server's data, which is removed at the end of the test.
// t.TempDir isn't suitable: the user that root's server runs as can't enter it, and its path is
// too long for a unix socket.
func Dir(t testing.TB) string {
	t.Helper()
	dir, leash, err := newDir()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := leash.Close(); err != nil {
			t.Errorf("pgtest: remove %s: %v", dir, err)
		}
	})
	return dir
}

// newDir creates a temporary directory, in memory if possible. It is removed when the leash is
// closed or this process ends.
func newDir() (string, *reaperPipe, error) {
	dir, err := os.MkdirTemp(parentDir(), "asyncflow-pgtest-")
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", nil, err
	}
	l, err := reap(dir)
	return dir, l, err
}

// reaper waits for the end of its input, which this process holds. Then it ends a server in the
// directory, and removes the directory. It first checks that the process is a Postgres server,
// since the id may belong to another process by now. It waits at most 10 s, since a server that
// nobody reaps stays in the process table.
const reaper = `
trap '' HUP INT QUIT TERM
read -r _
pid=$(head -n 1 "$1/pgdata/postmaster.pid")
if [ -n "$pid" ]; then
  case $(ps -o comm= -p "$pid") in *postgres) kill -INT "$pid" ;; esac
  n=0
  while kill -0 "$pid" && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
fi
rm -rf -- "$1"
`

// reaperPipe is this process's end of a reaper.
type reaperPipe struct {
	reaper *exec.Cmd
	input  io.Closer
}

// leashes keeps the inputs of all reapers from being closed by the garbage
// collector.
var leashes sync.Map

// reap starts a process that removes the directory when the returned leash is closed or this
// process ends, even by SIGKILL: this process can't clean up after its own end.
func reap(dir string) (*reaperPipe, error) {
	cmd := exec.Command("/bin/sh", "-c", reaper, "sh", dir)
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("reaper of %s: %w", dir, err)
	}
	l := &reaperPipe{reaper: cmd, input: input}
	leashes.Store(l, nil)
	return l, nil
}

// Close removes the directory and waits until it is gone.
func (l *reaperPipe) Close() error {
	leashes.Delete(l)
	_ = l.input.Close()
	return l.reaper.Wait()
}
