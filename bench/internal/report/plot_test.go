package report

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := Timeline{}
	for i, v := range []float64{1, math.NaN(), 3} {
		line.Add(float64(i), Figures{
			{"a", "First", "ms", v}, {"b", "Second", "ms", 2 * v}, {"c", "Third", "ms", v},
		})
	}
	require.NoError(t, line.Plot(dir,
		Chart{File: "lines", Title: "Lines", Y: "ms", Keys: []string{"a", "b"}}))
	svg, err := os.ReadFile(filepath.Join(dir, "lines.svg"))
	require.NoError(t, err)
	for _, text := range []string{"<svg", ">Lines<", ">First<", ">Second<", ">seconds<"} {
		assert.Contains(t, string(svg), text)
	}
	assert.NotContains(t, string(svg), ">Third<")
	g := Grid{By: "Size", Columns: []string{"none", "many"}}
	g.Add(Figures{{"a", "First", "ms", 1}})
	g.Add(Figures{{"a", "First", "ms", 2}})
	require.NoError(t, g.Plot(dir, Chart{File: "grid", Title: "Grid", Y: "ms",
		Keys: []string{"a"}}))
	svg, err = os.ReadFile(filepath.Join(dir, "grid.svg"))
	require.NoError(t, err)
	assert.Contains(t, string(svg), ">many<")
	require.NoError(t, g.Plot("", Chart{File: "none"}), "no plots are asked for")
}
