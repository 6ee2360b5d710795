package main

import (
	"fmt"
	"strings"
)

// target is what a figure should come to.
type target struct {
	title string
	key   string
	bound float64
	unit  string
	most  bool // the figure must be at most that, not at least
}

// targets are in the order of the table.
var targets = []target{
	{"One POST per task", "post.rate", 16_000, "tasks/s", false},
	{"One POST per task ÷ bare loop", "post.over_bare", 0.8, "×", false},
	{"One POST per task ÷ River with a POST", "post.over_river-post", 1.9, "×", false},
	{"One POST per task ÷ graphile-worker with a POST", "post.over_graphile-post", 1.5, "×", false},
	{"Three stages, one POST each", "stages.rate", 14_000, "deliveries/s", false},
	{"Single submits alone, 64 connections", "single.rate", 20_000, "tasks/s", false},
	{"Batch delivery, 50 tasks a POST", "batch.rate", 30_000, "tasks/s", false},
	{"Batch delivery ÷ River's no-op jobs", "batch.over_river", 2, "×", false},
	{"Batch delivery ÷ graphile-worker's no-op jobs", "batch.over_graphile", 1.7, "×", false},
	{"202, and a completion call for each task", "accepted.rate", 8_000, "tasks/s", false},
	{"Submit to arrival at 100 tasks/s, p50", "latency.latency_p50", 1.5, "ms", true},
	{"Submit to arrival at 100 tasks/s, p99", "latency.latency_p99", 4, "ms", true},
	{"Submit to arrival at half of the maximum rate, p99", "half.latency_p99", 60, "ms", true},
	{"Memory of a node with 1 M pending tasks", "pending.memory", 120, "MB", true},
	{"Contexts of 10 KB", "context10k.rate", 5_000, "tasks/s", false},
	{"Contexts of 100 KB", "context100k.rate", 800, "tasks/s", false},
	{"Two nodes ÷ one node", "nodes.over_one", 1, "×", false},
	{"Share of the node of two that does less", "nodes.least_share", 25, "%", false},
	{"1,000 task types in 100 tenants at 200 tasks/s, submit to arrival, p99", "types.latency_p99", 20, "ms", true},
}

// quotients are rates to compare within a round, by their scenarios.
var quotients = []struct{ of, by string }{
	{"post", "bare"}, {"post", "river-post"}, {"post", "graphile-post"}, {"batch", "river"}, {"batch", "graphile"},
}

// ratios returns the quotients of a round's rates, as far as both were measured, and of
// what all cores would allow by the CPU time of a task.
func ratios(round figures) (all figures) {
	for _, q := range quotients {
		for _, by := range []struct{ key, over, name string }{{".rate", ".over_", "÷ "}, {".cpu_bound", ".cpu_over_", "By CPU of all, ÷ "}} {
			one, ok1 := round.find(q.of + by.key)
			other, ok2 := round.find(q.by + by.key)
			if ok1 && ok2 {
				all = append(all, figure{q.of + by.over + q.by, by.name + q.by, "×", one / other})
			}
		}
	}
	return all
}

// met tells whether a value is what it should be.
func (t target) met(value float64) bool {
	if t.most {
		return value <= t.bound
	}
	return value >= t.bound
}

// whyNot returns why the figure is missing: because of its scenario, or of the one that it
// is compared with; "" if it was just not asked for.
func (t target) whyNot(missing map[string]string) string {
	for _, s := range scenarios {
		if why := missing[s.name]; why != "" && (strings.HasPrefix(t.key, s.name+".") || strings.HasSuffix(t.key, ".over_"+s.name)) {
			return why
		}
	}
	return ""
}

// String is the bound in words.
func (t target) String() string {
	sign := "≥"
	if t.most {
		sign = "≤"
	}
	return fmt.Sprintf("%s %s %s", sign, number(t.bound), t.unit)
}
