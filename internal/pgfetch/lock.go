//go:build linux || darwin

package pgfetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockPoll is how often a busy lock is tried again.
const lockPoll = 50 * time.Millisecond

// lock waits until no other process fetches into the cache. The system releases the lock when
// the process ends in any way.
func (f *fetch) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(f.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock the cache %s: %w", f.Dir, err)
		}
		if !waited {
			fmt.Fprintf(f.Progress, "Waiting for another process that fetches Postgres into %s.\n",
				f.Dir)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("another process has been fetching into %s: %w", f.Dir,
				ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
