package catalog

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Only the tests of package store use what stands here.

// Fill is SQL in which {number} stands for the number of the type.
func (t *Type) Fill(position int, sql string) string {
	return strings.ReplaceAll(t.SQL(position, sql), "{number}", strconv.Itoa(int(t.number)))
}

// ShiftClock has a clock go on at another time.
func ShiftClock(c *Clock, d time.Duration) { c.offset.Add(int64(d)) }

// TakeClock has a clock take over a measurement of the offset, made at a time since it began
// to run, and returns the offset that it goes by: all but the first in nanoseconds.
func TakeClock(c *Clock, at time.Duration, least, most int64) int64 {
	c.take(at, clockSample{least, most})
	return c.offset.Load()
}

// RefreshClock measures the offset of a clock.
func RefreshClock(ctx context.Context, c *Clock) error { return c.refresh(ctx) }

// ForgetWritten makes an audited call look as if the answer to its commit was lost.
func ForgetWritten(a *AuditedCall) { a.written = false }

// LimitLocks sets how long another transaction may keep this node out of a lock.
func (s *Core) LimitLocks(limit time.Duration) {
	s.holders.mu.Lock()
	defer s.holders.mu.Unlock()
	s.holders.limit = limit
}

// PoolShare returns how many connections of the base pool a tenant may have.
func (s *Core) PoolShare() int { return s.shares.Each() }
