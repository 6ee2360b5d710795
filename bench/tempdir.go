package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// reaperMode is the argument that makes this program a reaper.
const reaperMode = "reaper"

// tempDir is a directory for the data of a run. It is removed when it is closed,
// or when this process ends in whatever way.
type tempDir struct {
	path   string
	leash  io.Closer // our end of the reaper's input
	reaper *exec.Cmd
}

// newTempDir makes the directory. Other users may pass through it, since the
// Postgres that root starts runs as one of them.
func newTempDir() (*tempDir, error) {
	path, err := os.MkdirTemp("", "asyncflow-bench-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o711); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d := &tempDir{path: path, reaper: exec.Command(self, reaperMode, path)}
	d.reaper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	d.reaper.Stderr = os.Stderr
	if d.leash, err = d.reaper.StdinPipe(); err != nil {
		return nil, err
	}
	if err := d.reaper.Start(); err != nil {
		return nil, fmt.Errorf("reaper of %s: %w", path, err)
	}
	return d, nil
}

func (d *tempDir) join(name string) string { return filepath.Join(d.path, name) }

// close removes the directory and waits until it is gone.
func (d *tempDir) close() error {
	_ = d.leash.Close()
	return d.reaper.Wait()
}

// reaperPatience is how long the reaper waits for Postgres to leave.
const reaperPatience = 20 * time.Second

// runReaper waits for the end of its input, which comes when the process that
// holds the other end is gone, and for that of a Postgres in the directory, which
// is told of it by the kernel. Then it removes the directory.
func runReaper(input io.Reader, args []string) error {
	if len(args) != 1 {
		return errors.New("reaper: which directory?")
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, input)
	postmaster := filepath.Join(args[0], postgresDir, "pgdata", "postmaster.pid")
	for end := time.Now().Add(reaperPatience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(postmaster); errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	return os.RemoveAll(args[0])
}
