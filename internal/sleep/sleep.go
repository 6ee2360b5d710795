// Package sleep waits for a while.
package sleep

import (
	"context"
	"time"
)

// For waits for d, or for the end of ctx.
func For(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
