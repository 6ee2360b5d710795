package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	for p, want := range map[float64]float64{0: 1, 20: 1, 50: 3, 80: 4, 81: 5, 99: 5, 100: 5} {
		assert.Equal(t, want, percentile(values, p), "p%v", p)
	}
	assert.True(t, math.IsNaN(percentile(nil, 50)))
	assert.Equal(t, []float64{5, 1, 4, 2, 3}, values, "the values are left as they are")
}

func TestMedian(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 2.0, median([]float64{3, 1, 2}))
	assert.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
	assert.True(t, math.IsNaN(median(nil)))
}

func TestContextHoldsItsNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 1234567890} {
		context := appendContext(nil, n)
		assert.Len(t, context, contextBytes)
		assert.True(t, json.Valid(context))
		got, ok := numberIn([]byte(`{"task_id":"a.1.2","context":` + string(context) + `,"callback":{}}`))
		assert.True(t, ok)
		assert.Equal(t, n, got)
	}
	_, ok := numberIn([]byte(`{"context":{}}`))
	assert.False(t, ok)
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	s, err := parseStat("42 (a (b) c) S 7 42 42 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 12345 0 0")
	require.NoError(t, err)
	assert.Equal(t, stat{pid: 42, parent: 7, own: 330 * time.Millisecond, ended: 770 * time.Millisecond}, s)
	for _, line := range []string{"", "42", "42 (a) S 7", "42 (a) S " + strings.Repeat("x ", 20)} {
		_, err := parseStat(line)
		assert.Error(t, err, "%q", line)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234.5: "1,234", 1234567: "1,234,567"} {
		assert.Equal(t, want, number(v))
	}
}

func TestZeroRateIsBroken(t *testing.T) {
	t.Parallel()
	assert.NoError(t, figures{{unit: "tasks/s", value: 1}, {unit: "tasks", value: 0}}.check())
	assert.Error(t, figures{{unit: "tasks/s", value: 0}}.check())
	assert.Error(t, figures{{unit: "tasks/s", value: math.NaN()}}.check())
}
