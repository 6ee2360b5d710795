package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSkewed(t *testing.T) {
	t.Parallel()
	const tasks = 20_000
	few, chosen := 0, map[int]bool{}
	for range tasks {
		n := skewed(100)
		if n < 20 {
			few++
		}
		chosen[n] = true
	}
	assert.InDelta(t, 0.8, float64(few)/tasks, 0.05)
	assert.Len(t, chosen, 100, "each type has tasks")
	assert.False(t, chosen[-1] || chosen[100])
}

func TestCallTimes(t *testing.T) {
	t.Parallel()
	took := callTimes{time.Millisecond, 2 * time.Millisecond, 6 * time.Millisecond}
	assert.Equal(t, 3.0, took.mean())
	assert.Equal(t, 6.0, took.percentile(99))
}
