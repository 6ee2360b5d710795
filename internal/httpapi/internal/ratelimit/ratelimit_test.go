package httpapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"
)

// A bucket is of two seconds' tasks, and is filled again at the rate.
func TestTakeSubmits(t *testing.T) {
	t.Parallel()
	ts := &throttles{tenants: map[string]*rate.Limiter{}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a, wait := ts.take("acme", 10, 15, now)
	assert.Zero(t, wait)
	assert.Equal(t, allowance{burst: 20, left: 5, window: 2 * time.Second, reset: 1500 * time.Millisecond}, a)
	a, wait = ts.take("acme", 10, 6, now)
	assert.Equal(t, 100*time.Millisecond, wait, "one is missing")
	assert.Equal(t, 5, a.left, "nothing was taken")
	_, wait = ts.take("other", 10, 20, now)
	assert.Zero(t, wait, "tenants have buckets of their own")
	now = now.Add(100 * time.Millisecond)
	a, wait = ts.take("acme", 10, 6, now)
	assert.Zero(t, wait)
	assert.Zero(t, a.left)
}

// A batch that is larger than the bucket is taken when that is full, and made up for.
func TestTakeMoreThanTheBurst(t *testing.T) {
	t.Parallel()
	ts := &throttles{tenants: map[string]*rate.Limiter{}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a, wait := ts.take("acme", 10, 1000, now)
	assert.Zero(t, wait)
	assert.Equal(t, allowance{burst: 20, window: 2 * time.Second, reset: 100 * time.Second}, a)
	_, wait = ts.take("acme", 10, 1, now)
	assert.Equal(t, 98100*time.Millisecond, wait)
	_, wait = ts.take("acme", 10, 1, now.Add(98*time.Second))
	assert.NotZero(t, wait)
	_, wait = ts.take("acme", 10, 1, now.Add(98200*time.Millisecond))
	assert.Zero(t, wait)
}

// A new quota, or another number of nodes, counts at once.
func TestTakeAtAnotherRate(t *testing.T) {
	t.Parallel()
	ts := &throttles{tenants: map[string]*rate.Limiter{}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, wait := ts.take("acme", 100, 200, now)
	assert.Zero(t, wait)
	a, wait := ts.take("acme", 0.5, 1, now)
	assert.Equal(t, 2*time.Second, wait)
	assert.Equal(t, allowance{burst: 1, window: 2 * time.Second, reset: 2 * time.Second}, a)
	a, _ = ts.take("acme", 0.5, 1, now.Add(time.Hour))
	assert.Equal(t, 0, a.left, "of one, not of two hundred")
}
