package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLeastShare(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 20, leastShare([]float64{100, 0}, []float64{140, 10}), 1e-9)
}
