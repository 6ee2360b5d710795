package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			require.NoError(t, receive(t, busy))
		}
	}
}
