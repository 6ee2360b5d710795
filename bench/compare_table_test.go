package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/bench/internal/report"
)

// pairOf returns the figures of a base, where the rate is 1,000 and CPU per task 100 µs, and of a
// tree.
func pairOf(rate, cpu float64) [2]report.Figures {
	of := func(rate, cpu float64) (all report.Figures) {
		all.Add("rate", "Rate", "tasks/s", rate)
		all.Add("cpu_all", "CPU", "µs/task", cpu)
		return all
	}
	return [2]report.Figures{of(1000, 100), of(rate, cpu)}
}

func TestComparisonFailsWhenEveryPairCostsMore(t *testing.T) {
	t.Parallel()
	var c comparison
	c.add("post", pairOf(500, 100))
	require.NoError(t, c.verdict(), "a rate alone fails nothing")
	c = comparison{}
	c.add("post", pairOf(1000, 120))
	c.add("post", pairOf(1000, 140))
	c.add("single", pairOf(1000, 100))
	require.EqualError(t, c.verdict(),
		"post: a task takes 1.30 times the CPU time of , more than 1.15 in every pair")
	c.add("post", pairOf(1000, 114))
	require.NoError(t, c.verdict(), "one pair is below")
	assert.Equal(t, []float64{1.2, 1.4, 1.14}, c.find("post", "cpu_all").Ratios)
}

func TestComparisonPointsOutRows(t *testing.T) {
	t.Parallel()
	var c comparison
	c.add("post", pairOf(1000, 104))
	c.add("batch", pairOf(950, 101))
	var text strings.Builder
	c.writeMarkdown(&text)
	assert.Contains(t, text.String(),
		"CPU per task above 1.03 of the base's: post (1.040; 1.040–1.040).\n")
	assert.Contains(t, text.String(), "can cause: batch (0.950; 0.950–0.950).\n")
	assert.Contains(t, text.String(),
		"| post: CPU | µs/task | 100 | 104 | **1.040** | 1.040–1.040 | 1.040 |")
}

func TestComparedRowsAreScenarios(t *testing.T) {
	t.Parallel()
	for _, rows := range []names{compareRows, compareShort} {
		some, err := chosen(rows)
		require.NoError(t, err)
		assert.Len(t, some, len(rows))
	}
}
