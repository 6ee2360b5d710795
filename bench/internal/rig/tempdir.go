package rig

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

// ReaperMode is the argument that makes the bench program a reaper.
const ReaperMode = "reaper"

// tempDir is a directory for the data of a run. It is removed when it is closed, or when this
// process ends in any way.
type tempDir struct {
	path   string
	leash  io.Closer // our end of the reaper's input
	reaper *exec.Cmd
}

// newTempDir makes the directory. Other users may pass through it: a Postgres that root starts
// runs as one of them.
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
	d := &tempDir{path: path, reaper: exec.Command(self, ReaperMode, path)}
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

// RunReaper removes the directory of a run. It waits for the end of its input, which comes when
// the process at the other end is gone, and then for the end of a Postgres in the directory, which
// the kernel ends along with that process.
func RunReaper(input io.Reader, args []string) error {
	if len(args) != 1 {
		return errors.New("reaper: which directory?")
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, input)
	postmaster := filepath.Join(args[0], postgresDir, "pgdata", "postmaster.pid")
	for end := time.Now().Add(reaperPatience); time.Now().Before(end); {
		if _, err := os.Stat(postmaster); errors.Is(err, os.ErrNotExist) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return os.RemoveAll(args[0])
}
