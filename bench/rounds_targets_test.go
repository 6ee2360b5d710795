package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/bench/internal/report"
)

// Every target belongs to a scenario, and every quotient to two.
func TestTargetsAreMeasured(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, s := range scenarios {
		known[s.name] = true
	}
	for _, q := range quotients {
		assert.True(t, known[q.of] && known[q.by], "%v", q)
	}
	for _, target := range targets {
		scenario, key, _ := strings.Cut(target.key, ".")
		assert.True(t, known[scenario], target.key)
		if by, ok := strings.CutPrefix(key, "over_"); ok && scenario != "nodes" {
			both := report.Figures{{Key: scenario + ".rate", Value: 1}, {Key: by + ".rate", Value: 1}}
			assert.NotEmpty(t, ratios(both), target.key)
		}
	}
}

func TestTargetsAreComparedWithMedians(t *testing.T) {
	t.Parallel()
	r := result{Missing: map[string]string{"river": "it is not installed"}}
	for _, rate := range []float64{10_000, 20_000, 17_000} {
		var round report.Figures
		round.Add("post.rate", "Rate", "tasks/s", rate)
		round.Add("bare.rate", "Rate", "jobs/s", 25_000)
		round.Add("latency.latency_p99", "p99", "ms", 5)
		round.Add("nodes20.rate", "Rate", "tasks/s", rate)
		r.Figures.Add(append(round, ratios(round)...))
	}
	var text strings.Builder
	r.writeMarkdown(&text)
	for _, line := range []string{
		"| One POST per task | ≥ 16,000 tasks/s | **17,000** | 10,000–20,000 | yes |",
		"| One POST per task ÷ bare loop | ≥ 0.80 × | **0.68** | 0.40–0.80 | no |",
		"| Submit to arrival at 100 tasks/s, p99 | ≤ 4.00 ms | **5.00** | 5.00–5.00 | no |",
		"| Batch delivery ÷ River's no-op jobs | ≥ 2.00 × | not available: it is not installed | | |",
		"| Two nodes, workers that take 20 ms | no slower than before | **17,000** " +
			"| 10,000–20,000 | see `make bench-compare` |",
	} {
		assert.Contains(t, text.String(), line)
	}
	assert.NotContains(t, text.String(), "Three stages", "what wasn't asked for")
}
