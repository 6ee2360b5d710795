package ratelimit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A bucket holds the tasks of two seconds, and fills at the rate.
func TestTakeSubmits(t *testing.T) {
	t.Parallel()
	ts := &Tenants{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a, wait := ts.Take("acme", 10, 15, now)
	assert.Zero(t, wait)
	assert.Equal(t, Allowance{Burst: 20, Left: 5, Window: 2 * time.Second,
		Reset: 1500 * time.Millisecond}, a)
	a, wait = ts.Take("acme", 10, 6, now)
	assert.Equal(t, 100*time.Millisecond, wait, "one is missing")
	assert.Equal(t, 5, a.Left, "nothing was taken")
	_, wait = ts.Take("other", 10, 20, now)
	assert.Zero(t, wait, "tenants have buckets of their own")
	now = now.Add(100 * time.Millisecond)
	a, wait = ts.Take("acme", 10, 6, now)
	assert.Zero(t, wait)
	assert.Zero(t, a.Left)
}

// A batch larger than the bucket is taken when the bucket is full; the rate makes up for it later.
func TestTakeMoreThanTheBurst(t *testing.T) {
	t.Parallel()
	ts := &Tenants{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a, wait := ts.Take("acme", 10, 1000, now)
	assert.Zero(t, wait)
	assert.Equal(t, Allowance{Burst: 20, Window: 2 * time.Second, Reset: 100 * time.Second}, a)
	_, wait = ts.Take("acme", 10, 1, now)
	assert.Equal(t, 98100*time.Millisecond, wait)
	_, wait = ts.Take("acme", 10, 1, now.Add(98*time.Second))
	assert.NotZero(t, wait)
	_, wait = ts.Take("acme", 10, 1, now.Add(98200*time.Millisecond))
	assert.Zero(t, wait)
}

// A new quota, or another number of nodes, applies at once.
func TestTakeAtAnotherRate(t *testing.T) {
	t.Parallel()
	ts := &Tenants{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, wait := ts.Take("acme", 100, 200, now)
	assert.Zero(t, wait)
	a, wait := ts.Take("acme", 0.5, 1, now)
	assert.Equal(t, 2*time.Second, wait)
	assert.Equal(t, Allowance{Burst: 1, Window: 2 * time.Second, Reset: 2 * time.Second}, a)
	a, _ = ts.Take("acme", 0.5, 1, now.Add(time.Hour))
	assert.Equal(t, 0, a.Left, "of one, not of two hundred")
}

// However many tasks a submit makes, it takes a moment, and the tenant is served again in an hour.
func TestTakeFarMoreThanTheBurst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, n := range []int{math.MaxInt, 1_000_000_000_000, math.MinInt} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ts := &Tenants{}
			_, wait := ts.Take("acme", 0.5, n, now)
			assert.Zero(t, wait)
			_, wait = ts.Take("acme", 0.5, 1, now.Add(maxDebt+2*time.Second))
			assert.Zero(t, wait)
		})
	}
}

// What was taken in vain is given back, but a bucket never holds more than its burst.
func TestGive(t *testing.T) {
	t.Parallel()
	ts := &Tenants{}
	ts.Give("acme", 5)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ts.Take("acme", 10, 100, now)
	ts.Give("acme", 99)
	a, wait := ts.Take("acme", 10, 1, now)
	assert.Zero(t, wait)
	assert.Equal(t, 18, a.Left)
	ts.Give("acme", 50)
	a, _ = ts.Take("acme", 10, 0, now)
	assert.Equal(t, 20, a.Left)
}

// A charge is never refused: the tenant waits until the rate makes up for it, an hour at most. Time
// in which it submits nothing counts.
func TestCharge(t *testing.T) {
	t.Parallel()
	ts := &Tenants{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ts.Charge("acme", 10, 1000, now)
	_, wait := ts.Take("acme", 10, 1, now.Add(time.Second))
	assert.Equal(t, 97100*time.Millisecond, wait)
	_, wait = ts.Take("acme", 10, 1, now.Add(98200*time.Millisecond))
	assert.Zero(t, wait)
	for range 2 {
		ts.Charge("acme", 10, 1e12, now.Add(100*time.Second))
	}
	_, wait = ts.Take("acme", 10, 1, now.Add(100*time.Second))
	assert.Equal(t, maxDebt+100*time.Millisecond, wait)
}
