// Package sleep waits for a while.
package sleep

import (
	"context"
	"time"
)

// For waits for d, or for the end of ctx. It reports whether ctx lasted.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
