package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/report"
)

// target is what a figure should come to.
type target struct {
	title  string
	key    string
	unit   string
	bound  float64
	become direction
}

// direction says how a figure stands to its bound.
type direction int

const (
	atLeast direction = iota
	atMost
	asBefore // it is without a bound: "bench compare" measures it against a revision
)

// targets are in the order of the table.
var targets = []target{
	{"One POST per task", "post.rate", "tasks/s", 16_000, atLeast},
	{"One POST per task ÷ bare loop", "post.over_bare", "×", 0.8, atLeast},
	{"One POST per task ÷ bare loop, by CPU of all", "post.cpu_over_bare", "×", 0.95, atLeast},
	{"One POST per task ÷ River with a POST", "post.over_river-post", "×", 1.9, atLeast},
	{
		"One POST per task ÷ graphile-worker with a POST",
		"post.over_graphile-post", "×", 1.5, atLeast,
	},
	{"Three stages, one POST each", "stages.rate", "deliveries/s", 14_000, atLeast},
	{"Single submits alone, 64 connections", "single.rate", "tasks/s", 20_000, atLeast},
	{
		"Single submits, one POST each, ÷ River with jobs inserted singly",
		"one.over_river-one", "×", 4.5, atLeast,
	},
	{"Single submits, one POST each, mean submit", "one.submit_mean", "ms", 5, atMost},
	{
		"1,000 task types in 100 tenants ÷ River with 1,000 kinds",
		"tenants.over_river-kinds", "×", 1.9, atLeast,
	},
	{"1,000 task types in 100 tenants ÷ one type", "tenants.over_one", "×", 0.5, atLeast},
	{
		"80 % of the tasks of 20 % of the types ÷ River with such kinds",
		"skew.over_river-skew", "×", 2.2, atLeast,
	},
	{"Batch delivery, 50 tasks a POST", "batch.rate", "tasks/s", 30_000, atLeast},
	{"Batch delivery ÷ River's no-op jobs", "batch.over_river", "×", 2, atLeast},
	{"Batch delivery ÷ graphile-worker's no-op jobs", "batch.over_graphile", "×", 1.7, atLeast},
	{"202, and a completion call for each task", "accepted.rate", "tasks/s", 8_000, atLeast},
	{"Submit to arrival at 100 tasks/s, p50", "latency.latency_p50", "ms", 1.1, atMost},
	{"Submit to arrival at 100 tasks/s, p99", "latency.latency_p99", "ms", 3, atMost},
	{"Submit to arrival at half of the maximum rate, p99", "half.latency_p99", "ms", 60, atMost},
	{"End of a task to its event at 1,000 ends/s, p99", "told.late_p99", "ms", 250, atMost},
	{"End of a task to the answer of a submit that waits, p50", "waits.late_p50", "ms", 2, atMost},
	{
		"One key, 1,000 submits/s that replace its task, p99 of a submit",
		"debounce.submit_p99", "ms", 20, atMost,
	},
	{"Memory of a node with 1 M pending tasks", "pending.memory", "MB", 120, atMost},
	{"Contexts of 10 KB", "context10k.rate", "tasks/s", 5_000, atLeast},
	{"Contexts of 100 KB", "context100k.rate", "tasks/s", 800, atLeast},
	{"Two nodes on one machine ÷ one node", "nodes.over_one", "×", 0.85, atLeast},
	{"Share of the node of two that does less", "nodes.least_share", "%", 25, atLeast},
	{"Two nodes, workers that take 20 ms", "nodes20.rate", "tasks/s", 0, asBefore},
	{"Two nodes, workers that take 50 ms", "nodes50.rate", "tasks/s", 0, asBefore},
	{
		"1,000 task types in 100 tenants at 200 tasks/s, CPU of all ÷ one type",
		"types.cpu_of_one-type", "×", 1.1, atMost,
	},
	{
		"1,000 task types in 100 tenants at 200 tasks/s, CPU of all ÷ River with 1,000 kinds",
		"types.cpu_of_river-types", "×", 1, atMost,
	},
	{
		"1,000 task types in 100 tenants at 200 tasks/s, submit to arrival, p50",
		"types.latency_p50", "ms", 1.5, atMost,
	},
	{
		"1,000 task types in 100 tenants at 200 tasks/s, submit to arrival, p99",
		"types.latency_p99", "ms", 8, atMost,
	},
	{
		"1,000 task types in 100 tenants at 1,500 tasks/s, submit to arrival, p50",
		"types1500.latency_p50", "ms", 4, atMost,
	},
	{
		"1,000 task types in 100 tenants at 1,500 tasks/s, submit to arrival, p99",
		"types1500.latency_p99", "ms", 25, atMost,
	},
	{
		"Children of one task of 10,000 ÷ as many plain tasks",
		"children.over_plain", "×", 0.8, atLeast,
	},
	{
		"Last child settled to the next stage's arrival at 100 parents/s, p99",
		"join.latency_p99", "ms", 10, atMost,
	},
	{"Claims, 50 a call, 4 claimers", "claims.rate", "tasks/s", 15_000, atLeast},
	{"Claims, one a call, 64 claimers", "one-claim.rate", "tasks/s", 6_000, atLeast},
	{
		"Fair shares of 1,000 flow keys ÷ the same without turns",
		"fair.over_unfair", "×", 0.9, atLeast,
	},
	{
		"Fair shares of a backlog of 1,000 flow keys ÷ the same without turns",
		"fair-backlog.over_unfair-backlog", "×", 0.9, atLeast,
	},
	{"Tasks that expire at once", "expire.rate", "tasks/s", 16_700, atLeast},
	{
		"Submit to arrival of another type while tasks expire, p99 ÷ before",
		"expire.over_before", "×", 2, atMost,
	},
	{"Release of 10,000 tasks that wait for one", "release.released", "ms", 0, asBefore},
}

// quotient compares two scenarios within a round, by their names.
type quotient struct{ of, by string }

// quotients are of rates, and costQuotients of the CPU time of a task where the rate is given.
var (
	quotients = []quotient{
		{"post", "bare"}, {"post", "river-post"}, {"post", "graphile-post"},
		{"batch", "river"}, {"batch", "graphile"},
		{"one", "river-one"},
		{"tenants", "river-kinds"}, {"tenants", "one"},
		{"skew", "river-skew"},
		{"children", "plain"},
		{"fair", "unfair"}, {"fair-backlog", "unfair-backlog"},
	}
	costQuotients = []quotient{{"types", "one-type"}, {"types", "river-types"}}
)

// ratios returns the quotients of a round, as far as both sides were measured: of the rates, and
// of the rates that all cores would allow by the CPU time of a task; or of that time itself.
func ratios(round report.Figures) (all report.Figures) {
	divide := func(q quotient, key, as, name string) {
		one, ok1 := round.Find(q.of + key)
		other, ok2 := round.Find(q.by + key)
		if ok1 && ok2 {
			all.Add(q.of+as+q.by, name+q.by, "×", one/other)
		}
	}
	for _, q := range quotients {
		divide(q, ".rate", ".over_", "÷ ")
		divide(q, ".cpu_bound", ".cpu_over_", "By CPU of all, ÷ ")
	}
	for _, q := range costQuotients {
		divide(q, ".cpu_all", ".cpu_of_", "CPU of all, ÷ ")
	}
	return all
}

// met says whether a value is what it should be: "yes", "no", or where to look.
func (t target) met(value float64) string {
	switch {
	case t.become == asBefore:
		return "see `make bench-compare`"
	case t.become == atLeast && value >= t.bound, t.become == atMost && value <= t.bound:
		return "yes"
	}
	return "no"
}

// whyNot returns why the figure is missing: because of its scenario, or of the one that it is
// compared with. It is "" if the scenario was just not asked for.
func (t target) whyNot(missing map[string]string) string {
	scenario, key, _ := strings.Cut(t.key, ".")
	for name, why := range missing {
		if name == scenario || slices.Contains(quotientKeys(name), key) {
			return why
		}
	}
	return ""
}

// quotientKeys are the keys of figures that compare a scenario with another, by its name.
func quotientKeys(by string) []string {
	return []string{"over_" + by, "cpu_over_" + by, "cpu_of_" + by}
}

// String is the bound in words.
func (t target) String() string {
	sign := "≥"
	switch t.become {
	case asBefore:
		return "no slower than before"
	case atMost:
		sign = "≤"
	}
	return fmt.Sprintf("%s %s %s", sign, report.Number(t.bound), t.unit)
}
