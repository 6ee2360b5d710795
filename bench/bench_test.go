package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
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
		context := appendContext(nil, n, contextBytes)
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

func TestMeans(t *testing.T) {
	t.Parallel()
	assert.Equal(t, figures{{"rate", "Rate", "tasks/s", 1.5}, {"cpu_all", "CPU", "µs/task", 2}}, meanOf([]figures{
		{{"rate", "Rate", "tasks/s", 1}, {"cpu_all", "CPU", "µs/task", 1}},
		{{"rate", "Rate", "tasks/s", 3}, {"cpu_all", "CPU", "µs/task", 3}},
	}))
	assert.InDelta(t, 20, leastShare([]float64{100, 0}, []float64{140, 10}), 1e-9)
}

func TestZeroRateIsBroken(t *testing.T) {
	t.Parallel()
	assert.NoError(t, figures{{unit: "tasks/s", value: 1}, {unit: "tasks", value: 0}}.check())
	assert.Error(t, figures{{unit: "tasks/s", value: 0}}.check())
	assert.Error(t, figures{{unit: "tasks/s", value: math.NaN()}}.check())
}

func TestPlot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := timeline{}
	for i, v := range []float64{1, math.NaN(), 3} {
		line.add(float64(i), figures{{"a", "First", "ms", v}, {"b", "Second", "ms", 2 * v}, {"c", "Third", "ms", v}})
	}
	require.NoError(t, line.plot(dir, chart{file: "lines", title: "Lines", y: "ms", keys: []string{"a", "b"}}))
	svg, err := os.ReadFile(filepath.Join(dir, "lines.svg"))
	require.NoError(t, err)
	for _, text := range []string{"<svg", ">Lines<", ">First<", ">Second<", ">seconds<"} {
		assert.Contains(t, string(svg), text)
	}
	assert.NotContains(t, string(svg), ">Third<")
	g := grid{By: "Size", Columns: []string{"none", "many"}}
	g.add(figures{{"a", "First", "ms", 1}})
	g.add(figures{{"a", "First", "ms", 2}})
	require.NoError(t, g.plot(dir, chart{file: "grid", title: "Grid", y: "ms", keys: []string{"a"}}))
	svg, err = os.ReadFile(filepath.Join(dir, "grid.svg"))
	require.NoError(t, err)
	assert.Contains(t, string(svg), ">many<")
	require.NoError(t, g.plot("", chart{file: "none"}), "no plots are asked for")
}

func TestSizes(t *testing.T) {
	t.Parallel()
	var s sizes
	require.NoError(t, s.Set("0,1000000"))
	assert.Equal(t, sizes{0, 1000000}, s)
	for _, text := range []string{"", "1,", "-1", "a"} {
		assert.Error(t, s.Set(text), text)
	}
}
