//go:build linux || darwin

package devpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// postmaster is what postmaster.pid in a cluster says about its server.
type postmaster struct {
	pid    int
	status string // starting, ready, standby or stopping; empty very early
}

// takesConnections reports whether the server says that it does.
func (pm postmaster) takesConnections() bool {
	return pm.status == "ready" || pm.status == "standby"
}

// readPostmaster reads postmaster.pid: the pid is in its first line, the status
// in its eighth (src/include/utils/pidfile.h of Postgres). No file is an
// fs.ErrNotExist error.
func readPostmaster(pgdata string) (postmaster, error) {
	name := filepath.Join(pgdata, "postmaster.pid")
	text, err := os.ReadFile(name)
	if err != nil {
		return postmaster{}, err
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return postmaster{}, fmt.Errorf("%s: no pid: %w", name, err)
	}
	pm := postmaster{pid: max(pid, -pid)} // negative: a single-user server
	if len(lines) > 7 {
		pm.status = strings.TrimSpace(lines[7])
	}
	return pm, nil
}

// clearStale looks at the postmaster.pid that a server left, while we hold the
// lock. A live server that was started without us is an error. A file whose pid
// now belongs to some other program, as is common in containers, is removed:
// postgres would take that program for its predecessor and refuse to start. Any
// other stale file is left to postgres, which checks it more thoroughly.
func (l layout) clearStale() error {
	pm, err := readPostmaster(l.pgdata())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !alive(pm.pid) {
		return nil // postgres says what it thinks of an unreadable file
	}
	if servesCluster(pm.pid, l.pgdata()) {
		return l.inUse(pm.pid)
	}
	return os.Remove(filepath.Join(l.pgdata(), "postmaster.pid"))
}

// alive reports whether there is a process of that id, ours or not.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
