package postgres

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// Callers that find no connection free wait in turn, or until their context ends.
func TestHotSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := &HotPool{slots: semaphore.NewWeighted(1)}
		require.NoError(t, pool.waitForSlot(t.Context()))
		var got []int
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 4 {
			go func() {
				if n == 1 {
					assert.ErrorIs(t, pool.waitForSlot(ctx), context.Canceled)
				} else if assert.NoError(t, pool.waitForSlot(t.Context())) {
					got = append(got, n)
				}
			}()
			synctest.Wait()
		}
		cancel()
		time.Sleep(time.Second)
		require.Empty(t, got)
		for _, want := range [][]int{{0}, {0, 2}, {0, 2, 3}} {
			pool.release(nil)
			synctest.Wait()
			require.Equal(t, want, got)
		}
		pool.release(nil)
		require.NoError(t, pool.waitForSlot(t.Context()))
		assert.Equal(t, int64(3), pool.Stat().Waits)
		assert.InDelta(t, 3, pool.Stat().WaitSeconds, 1e-6)
	})
}
