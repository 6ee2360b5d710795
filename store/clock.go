package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// clockEvery is how often the offset is measured.
const clockEvery = 5 * time.Second

// slowSample is the round trip above which a measurement is left out.
const slowSample = time.Second

// Clock tells the database's time without asking for it: it keeps the offset
// from clock_timestamp() to this process' monotonic clock. What the node's wall
// clock says plays no part.
type Clock struct {
	pool   *pgxpool.Pool
	start  time.Time    // monotonic zero
	offset atomic.Int64 // database's unix nanoseconds at start
}

func newClock(pool *pgxpool.Pool) *Clock {
	return &Clock{pool: pool, start: time.Now()}
}

// Now returns the database's time, to within the round trip of a query, with
// the microseconds that Postgres keeps.
func (c *Clock) Now() time.Time {
	return time.Unix(0, c.offset.Load()+int64(time.Since(c.start))).UTC().Truncate(time.Microsecond)
}

// refresh measures the offset, taking the answer to be from the middle of the
// round trip.
func (c *Clock) refresh(ctx context.Context) error {
	before := time.Since(c.start)
	var now time.Time
	if err := c.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return wrap(err, "Clock.refresh")
	}
	after := time.Since(c.start)
	if after-before > slowSample && c.offset.Load() != 0 {
		return nil // too coarse; the last one is better
	}
	c.offset.Store(now.UnixNano() - int64(before+after)/2)
	return nil
}
