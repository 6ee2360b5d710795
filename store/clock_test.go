package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
)

// While the pool is busy the clock isn't ahead of the database's, as the round trip doesn't
// include the wait for a connection. Otherwise tasks would come before they are due.
func TestClockOfABusyPool(t *testing.T) {
	b := setup(t)
	for range 3 {
		busy := make(chan error, 4)
		for range 4 { // all there are
			conn, err := b.Base().Acquire(t.Context())
			require.NoError(t, err)
			go func() {
				defer conn.Release()
				_, err := conn.Exec(t.Context(), `SELECT pg_sleep(0.3)`)
				busy <- err
			}()
		}
		require.NoError(t, b.RefreshClock(t.Context()))
		now := b.Clock.Now()
		var theirs time.Time
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&theirs))
		assert.LessOrEqual(t, now.Sub(theirs), time.Millisecond, "how far the node is ahead")
		for range 4 {
			require.NoError(t, <-busy)
		}
	}
}

// However long the round trips take, and however fast the clocks drift apart, a node is never
// ahead, and is behind by at most its shortest round trip and the drift.
func TestClockIsNeverAhead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &store.Clock{}
		truth, at := int64(1e18), time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "measurements") {
			pause := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "pause"))
			at += pause
			truth += rapid.Int64Range(-int64(pause)/2001, int64(pause)/2001).Draw(t, "drift")
			if rapid.IntRange(0, 20).Draw(t, "set back") == 0 {
				truth -= int64(time.Hour)
			}
			trip := rapid.Int64Range(0, int64(time.Second)).Draw(t, "trip")
			least := truth - rapid.Int64Range(0, trip).Draw(t, "way back")
			offset := catalog.TakeClock(c, at, least, least+trip)
			require.LessOrEqual(t, offset, truth)
			require.GreaterOrEqual(t, offset, least)
		}
	})
}
