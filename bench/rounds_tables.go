package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
)

// result is that of a run.
type result struct {
	Machine machine.Machine   `json:"machine"`
	Tasks   int               `json:"tasks"` // of a round
	Short   bool              `json:"short"`
	Missing map[string]string `json:"missing,omitempty"` // scenarios not available, and why
	Figures report.Rounds     `json:"figures"`
}

func (r *result) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s. Rounds of %d tasks with %d-byte contexts; "+
		"medians, and the range of the rounds.\n", r.Machine, r.Tasks, payload.Usual)
	if r.Short {
		fmt.Fprintln(w, "This is the short form, with fewer pending tasks and task types too: "+
			"its figures mean little.")
	}
	r.writeTargets(w)
	r.writeCosts(w)
	r.writeOthers(w)
}

// writeTargets writes the targets, and whether they were met.
func (r *result) writeTargets(w io.Writer) {
	var lines []string
	for _, t := range targets {
		if s := r.Figures.Series(t.key); s != nil {
			lines = append(lines, fmt.Sprintf("| %s | %s | **%s** | %s–%s | %s |",
				t.title, t, report.Number(s.Median), report.Number(s.Min), report.Number(s.Max),
				t.met(s.Median)))
		} else if why := t.whyNot(r.Missing); why != "" {
			lines = append(lines, fmt.Sprintf("| %s | %s | not available: %s | | |", t.title, t,
				why))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n| | Target | Median | Min–max | Met |\n|---|---:|---:|---:|---|\n%s\n",
			strings.Join(lines, "\n"))
	}
}

type costColumn struct{ key, head string }

// costColumns are the figures that stand beside a rate, by their keys.
var costColumns = []costColumn{
	{"settled_p50", "Submit to settled, p50, ms"},
	{"settled_p99", "p99, ms"},
	{"wal", "WAL, bytes"},
	{"transactions", "Commits per 1,000"},
	{"dead", "Dead rows"},
	{"cpu_node", "CPU of the node, µs"},
	{"cpu_postgres", "of Postgres"},
	{"cpu_worker", "of the worker"},
	{"cpu_submitter", "of the client"},
	{"cpu_all", "of all"},
	{"cores_busy", "Cores busy"},
	{"cpu_bound", "All cores ÷ CPU of all"},
}

// writeCosts writes a line for each scenario with a measured rate or CPU time, and what each of
// its tasks costs.
func (r *result) writeCosts(w io.Writer) {
	fmt.Fprint(w, "\n| For each task | Rate |")
	for _, c := range costColumns {
		fmt.Fprintf(w, " %s |", c.head)
	}
	fmt.Fprintf(w, "\n|---|---:|%s\n", strings.Repeat("---:|", len(costColumns)))
	for _, one := range scenarios {
		rate := r.Figures.Series(one.name + ".rate")
		switch {
		case rate != nil:
			fmt.Fprintf(w, "| %s | %s %s |", one.title, report.Number(rate.Median), rate.Unit)
		case r.Figures.Series(one.name+".cpu_all") != nil:
			fmt.Fprintf(w, "| %s | – |", one.title)
		default:
			continue
		}
		for _, c := range costColumns {
			text := "–"
			if s := r.Figures.Series(one.name + "." + c.key); s != nil {
				text = report.Number(s.Median)
			}
			fmt.Fprintf(w, " %s |", text)
		}
		fmt.Fprintln(w)
	}
	for _, one := range scenarios {
		if why, ok := r.Missing[one.name]; ok {
			fmt.Fprintf(w, "| %s | not available: %s |%s\n",
				one.title, why, strings.Repeat(" |", len(costColumns)))
		}
	}
}

// writeOthers writes the figures that stand in neither of the other tables. Those that are always
// 0, such as tasks that came twice, are in the JSON alone.
func (r *result) writeOthers(w io.Writer) {
	fmt.Fprint(w, "\n| Other figures | Unit | Median | Min–max |\n|---|---|---:|---:|\n")
	for _, one := range scenarios {
		for _, s := range r.Figures {
			key, ok := strings.CutPrefix(s.Key, one.name+".")
			if !ok || key == "rate" || s.Max == 0 || isCost(key) || isTarget(s.Key) {
				continue
			}
			fmt.Fprintf(w, "| %s: %s | %s | **%s** | %s–%s |\n", one.title, s.Name, s.Unit,
				report.Number(s.Median), report.Number(s.Min), report.Number(s.Max))
		}
	}
}

func isCost(key string) bool {
	return slices.ContainsFunc(costColumns, func(c costColumn) bool { return c.key == key })
}

func isTarget(key string) bool {
	return slices.ContainsFunc(targets, func(t target) bool { return t.key == key })
}
