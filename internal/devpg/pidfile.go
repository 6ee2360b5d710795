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

// postmaster is the content of a cluster's postmaster.pid.
type postmaster struct {
	pid    int
	status string // starting, ready, standby or stopping; empty very early
}

// takesConnections reports whether the server says that it takes connections.
func (pm postmaster) takesConnections() bool {
	return pm.status == "ready" || pm.status == "standby"
}

// readPostmaster reads postmaster.pid: the first line is the pid, the eighth is the status
// (src/include/utils/pidfile.h of Postgres). Without the file, the error is fs.ErrNotExist.
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

// clearStale checks a leftover postmaster.pid while we hold the lock. A live server that was
// started by other means is an error. A file with a pid that now belongs to another program, as is
// common in containers, is removed: postgres would take that program for its predecessor and refuse
// to start. Any other stale file is left to postgres, which checks it more thoroughly.
func (l layout) clearStale() error {
	pm, err := readPostmaster(l.pgdata())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !alive(pm.pid) {
		return nil // postgres reports an unreadable file itself
	}
	if servesCluster(pm.pid, l.pgdata()) {
		return l.inUse(pm.pid)
	}
	return os.Remove(filepath.Join(l.pgdata(), "postmaster.pid"))
}

// alive reports whether a process with that id exists, ours or not.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
