package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/bench/internal/report"
)

// Every target belongs to a scenario, and every quotient to two, unless a scenario compares
// two figures of its own.
func TestTargetsAreMeasured(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, s := range scenarios {
		known[s.name] = true
	}
	within := []string{"nodes", "expire"}
	var compared []string
	for _, q := range slices.Concat(quotients, costQuotients) {
		for _, key := range quotientKeys(q.by) {
			compared = append(compared, q.of+"."+key)
		}
		assert.True(t, known[q.of] && known[q.by], "%v", q)
	}
	for _, target := range targets {
		scenario, _, _ := strings.Cut(target.key, ".")
		assert.True(t, known[scenario], target.key)
		if target.unit == "×" && !slices.Contains(within, scenario) {
			assert.Contains(t, compared, target.key)
		}
	}
}

func TestTargetsAreComparedWithMedians(t *testing.T) {
	t.Parallel()
	r := result{Missing: map[string]string{
		"river": "it is not installed", "river-types": "it lacks kinds",
	}}
	for _, rate := range []float64{10_000, 20_000, 17_000} {
		var round report.Figures
		round.Add("post.rate", "Rate", "tasks/s", rate)
		round.Add("bare.rate", "Rate", "jobs/s", 25_000)
		round.Add("latency.latency_p99", "p99", "ms", 5)
		round.Add("types.cpu_all", "CPU of all", "µs/task", 300)
		round.Add("one-type.cpu_all", "CPU of all", "µs/task", 200)
		round.Add("nodes20.rate", "Rate", "tasks/s", rate)
		r.Figures.Add(append(round, ratios(round)...))
	}
	var text strings.Builder
	r.writeMarkdown(&text)
	for _, line := range []string{
		"| One POST per task | ≥ 16,000 tasks/s | **17,000** | 10,000–20,000 | yes |",
		"| One POST per task ÷ bare loop | ≥ 0.80 × | **0.68** | 0.40–0.80 | no |",
		"| Submit to arrival at 100 tasks/s, p99 | ≤ 3.00 ms | **5.00** | 5.00–5.00 | no |",
		"| 1,000 task types in 100 tenants at 200 tasks/s, CPU of all ÷ one type " +
			"| ≤ 1.10 × | **1.50** | 1.50–1.50 | no |",
		"| 1,000 task types in 100 tenants at 200 tasks/s, CPU of all ÷ River with 1,000 kinds " +
			"| ≤ 1.00 × | not available: it lacks kinds | | |",
		"| Batch delivery ÷ River's no-op jobs | ≥ 2.00 × | not available: it is not installed | " +
			"| |",
		"| Two nodes, workers that take 20 ms | no slower than before | **17,000** " +
			"| 10,000–20,000 | see `make bench-compare` |",
	} {
		assert.Contains(t, text.String(), line)
	}
	assert.NotContains(t, text.String(), "Three stages", "what wasn't asked for")
}
