//go:build linux || darwin

package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	// lockPoll is how often a busy lock is tried again.
	lockPoll = 10 * time.Millisecond
	// lockPatience is how long to wait for a server that doesn't appear to stop: right after its
	// parent was killed, a server doesn't appear so yet.
	lockPatience = 500 * time.Millisecond
)

// acquire takes the lock of a data directory. For a server that is stopping, or lost its main
// process, it waits until ctx ends or stepTimeout. For a running server it returns a CodeConflict
// error with the pid. Closing the file releases the lock, unless a child inherited it.
func (l layout) acquire(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	impatient := time.Now().Add(lockPatience)
	for {
		f, err := l.tryLock()
		if f != nil || err != nil {
			return f, err
		}
		pm, err := readPostmaster(l.pgdata())
		atWork := err != nil || (pm.status != "stopping" && alive(pm.pid))
		if atWork && time.Now().After(impatient) {
			return nil, l.inUse(pm.pid)
		}
		select {
		case <-ctx.Done():
			return nil, l.inUse(pm.pid)
		case <-time.After(lockPoll):
		}
	}
}

// tryLock returns the locked file, or nil if another process holds the lock.
func (l layout) tryLock() (*os.File, error) {
	f, err := os.OpenFile(l.lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock the data directory: %w", err)
}

// waitUnlocked returns once the last process that shares the lock is gone.
func (l layout) waitUnlocked(ctx context.Context) error {
	for {
		f, err := l.tryLock()
		if err != nil {
			return err
		}
		if f != nil {
			return f.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes of the server in %s are still there: %w", l, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// inUse is the error about another server on the data directory; pid is 0 if that server is without
// one yet.
func (l layout) inUse(pid int) error {
	if pid == 0 {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"the data directory %s is in use: another process is starting a server there", l)
	}
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"the data directory %s is in use by the Postgres server with pid %d: stop the asyncflow "+
			"that started it, "+
			"or choose another data directory; if that asyncflow is gone, kill -INT %d stops the "+
			"server", l,
		pid, pid)
}
