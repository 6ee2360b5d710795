package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChosen(t *testing.T) {
	t.Parallel()
	all, err := chosen(nil)
	require.NoError(t, err)
	assert.Len(t, all, len(scenarios))
	some, err := chosen(names{"river", "post"})
	require.NoError(t, err)
	require.Len(t, some, 2)
	assert.Equal(t, "post", some[0].name, "in the order of a round")
	for _, wrong := range []names{{"nothing"}, {"post", "post"}, {""}} {
		_, err := chosen(wrong)
		assert.ErrorContains(t, err, "choose from post,")
	}
}

// Scenarios that are compared have their turns side by side, each as often first as second,
// or once more.
func TestByTurns(t *testing.T) {
	t.Parallel()
	var begun []started
	for _, s := range []scenario{{name: "a", turns: 3}, {name: "b", turns: 3}, {name: "c", turns: 1}, {name: "d", turns: 1}} {
		begun = append(begun, started{scenario: s})
	}
	named := func(turns []started) (all string) {
		for _, s := range turns {
			all += s.name
		}
		return all
	}
	assert.Equal(t, "abbaabcd", named(byTurns(begun, false)))
	assert.Equal(t, "abcd", named(byTurns(begun, true)))
	assert.Equal(t, "aaac", named(byTurns([]started{begun[0], begun[2]}, false)), "one that is measured alone")
	assert.Equal(t, "abcd", named(begun), "they are left as they are")
}

// Every target is of a scenario, and every quotient of two.
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
			assert.NotEmpty(t, ratios(figures{{key: scenario + ".rate", value: 1}, {key: by + ".rate", value: 1}}), target.key)
		}
	}
}

func TestTargetsAreHeldAgainstMedians(t *testing.T) {
	t.Parallel()
	r := report{Missing: map[string]string{"river": "it is not installed"}}
	for _, rate := range []float64{10_000, 20_000, 17_000} {
		round := figures{{"post.rate", "Rate", "tasks/s", rate}, {"bare.rate", "Rate", "jobs/s", 25_000}, {"latency.latency_p99", "p99", "ms", 5}}
		r.add(append(round, ratios(round)...))
	}
	var text strings.Builder
	r.writeMarkdown(&text)
	assert.Contains(t, text.String(), "| One POST per task | ≥ 16,000 tasks/s | **17,000** | 10,000–20,000 | yes |")
	assert.Contains(t, text.String(), "| One POST per task ÷ bare loop | ≥ 0.80 × | **0.68** | 0.40–0.80 | no |")
	assert.Contains(t, text.String(), "| Submit to arrival at 100 tasks/s, p99 | ≤ 4.00 ms | **5.00** | 5.00–5.00 | no |")
	assert.Contains(t, text.String(), "| Batch delivery ÷ River's no-op jobs | ≥ 2.00 × | not available: it is not installed | | |")
	assert.NotContains(t, text.String(), "Three stages", "what wasn't asked for")
}

func TestComparisonFailsFarBelowTheBase(t *testing.T) {
	t.Parallel()
	pair := func(base, head, cpu float64) [2]figures {
		return [2]figures{{{"rate", "Rate", "tasks/s", base}, {"cpu_all", "CPU", "µs/task", 100}}, {{"rate", "Rate", "tasks/s", head}, {"cpu_all", "CPU", "µs/task", cpu}}}
	}
	var c comparison
	c.add("post", pair(1000, 760, 200))
	require.NoError(t, c.verdict(), "CPU alone makes nothing fail")
	c.add("post", pair(1000, 700, 100))
	c.add("post", pair(1000, 710, 100))
	require.ErrorContains(t, c.verdict(), "post: 0.71 of the rate")
	require.Len(t, c.Figures, 2)
	c.add("post", pair(1000, 1010, 100))
	c.add("post", pair(1000, 500, 100))
	require.NoError(t, c.verdict(), "it swings")
	assert.Equal(t, []float64{2, 1, 1, 1, 1}, c.Figures[1].Ratios)
}
