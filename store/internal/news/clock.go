package news

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// ClockEvery is how often the offset is measured.
const ClockEvery = 5 * time.Second

const (
	// clockSamples is how many round trips a measurement takes. The shortest one counts.
	clockSamples = 3
	// clockDrift is how fast the clocks may drift apart: as fast as NTP slews one, 500 µs a
	// second.
	clockDrift = 500e-6
)

// Clock returns the database's time without a query: it keeps the offset from
// clock_timestamp() to this process' monotonic clock. It never uses the node's wall clock.
type Clock struct {
	pool   *pgxpool.Pool
	start  time.Time // monotonic zero
	offset atomic.Pointer[clockOffset]
}

// clockOffset is the database's unix time less the time since a clock's start, in nanoseconds.
type clockOffset struct {
	nanos int64
	taken time.Duration // when it was measured, after start
	// from is the offset just before, if that was more: a step back would make what was due a
	// moment ago due no more. So the offset comes down as slowly as the clocks may drift apart.
	from int64
}

// after returns the offset at a time after start.
func (o clockOffset) after(since time.Duration) int64 {
	return max(o.nanos, o.from-drifted(since-o.taken))
}

// drifted returns how far the clocks may drift apart in a time, in nanoseconds.
func drifted(d time.Duration) int64 { return int64(clockDrift * float64(d)) }

// NewClock returns a clock over a pool. It has no time until RefreshClock.
func NewClock(pool *pgxpool.Pool) *Clock {
	c := &Clock{pool: pool, start: time.Now()}
	c.offset.Store(&clockOffset{})
	return c
}

// Now returns the database's time in microseconds, as Postgres has it. It may be behind by up to
// the round trip of a query. It isn't ahead, so that nothing comes early, except for what the
// clocks drifted apart since the last measurement. It never goes back, unless the database's clock
// was set back: what this node wrote as due now is due whenever it looks later.
func (c *Clock) Now() time.Time {
	since := time.Since(c.start)
	return time.Unix(0, c.offset.Load().after(since)+int64(since)).UTC().Truncate(time.Microsecond)
}

// RefreshClock measures the offset of a clock. The round trips don't include the wait for a
// connection.
func RefreshClock(ctx context.Context, c *Clock) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return postgres.Wrap(err, "RefreshClock")
	}
	defer conn.Release()
	var best clockSample
	for i := range clockSamples {
		sample, err := c.sample(ctx, conn)
		if err != nil {
			return postgres.Wrap(err, "RefreshClock")
		}
		if i == 0 || sample.trip() < best.trip() {
			best = sample
		}
	}
	c.adopt(time.Since(c.start), best)
	return nil
}

// clockSample bounds the offset: the server read its clock after the question was sent and
// before the answer came.
type clockSample struct{ least, most int64 } // nanoseconds

func (s clockSample) trip() time.Duration { return time.Duration(s.most - s.least) }

// sample takes one round trip.
func (c *Clock) sample(ctx context.Context, conn *pgxpool.Conn) (clockSample, error) {
	var now time.Time
	before := time.Since(c.start)
	err := conn.QueryRow(ctx, `SELECT clock_timestamp()`,
		pgx.QueryExecModeSimpleProtocol).Scan(&now)
	after := time.Since(c.start)
	return clockSample{now.UnixNano() - int64(after), now.UnixNano() - int64(before)}, err
}

// adopt uses a measurement; at is its time since start. The new offset is the measurement's least
// or, if that is more, the last offset less the drift since then. Neither is ahead of the database,
// however long the round trip took. If even the latter is more than the measurement allows, the
// clock of the database was set back. After a time without measurements, as while the database is
// silent, another server may answer: then what the clocks drifted apart in two measurements' time
// is all that an offset may be ahead.
func (c *Clock) adopt(at time.Duration, s clockSample) {
	last := c.offset.Load()
	known := last.nanos - drifted(min(at-last.taken, 2*ClockEvery))
	next := &clockOffset{nanos: max(known, s.least), taken: at, from: last.after(at)}
	if known > s.most {
		next.nanos, next.from = s.least, s.least
	}
	c.offset.Store(next)
}
