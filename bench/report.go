package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// report is the result of a run.
type report struct {
	Machine machine           `json:"machine"`
	Tasks   int               `json:"tasks"` // of a round
	Short   bool              `json:"short"`
	Missing map[string]string `json:"missing,omitempty"` // scenarios that aren't available, and why
	Figures []series          `json:"figures"`
}

// series is one figure in all rounds.
type series struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Rounds []float64 `json:"rounds"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
}

// add adds the figures of a round.
func (r *report) add(round figures) {
	for _, f := range round {
		s := r.series(f.key)
		if s == nil {
			r.Figures = append(r.Figures, series{Key: f.key, Name: f.name, Unit: f.unit})
			s = &r.Figures[len(r.Figures)-1]
		}
		s.Rounds = append(s.Rounds, f.value)
		s.Median, s.Min, s.Max = median(s.Rounds), slices.Min(s.Rounds), slices.Max(s.Rounds)
	}
}

// series returns that of a key, nil when there is none.
func (r *report) series(key string) *series {
	for i := range r.Figures {
		if r.Figures[i].Key == key {
			return &r.Figures[i]
		}
	}
	return nil
}

// writeJSON writes what was measured to a file, unless its name is "".
func writeJSON(file string, measured any) error {
	if file == "" {
		return nil
	}
	doc, err := json.MarshalIndent(measured, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(doc, '\n'), 0o644)
}

func (r *report) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s. Rounds of %d tasks with %d-byte contexts; medians, and the range of the rounds.\n", r.Machine, r.Tasks, contextBytes)
	if r.Short {
		fmt.Fprintln(w, "This is the short form, with fewer pending tasks and task types too: its figures mean little.")
	}
	r.writeTargets(w)
	r.writeCosts(w)
	r.writeOthers(w)
}

// writeTargets writes what was to be reached, and whether it was.
func (r *report) writeTargets(w io.Writer) {
	var lines []string
	for _, t := range targets {
		if s := r.series(t.key); s != nil {
			met := "no"
			if t.met(s.Median) {
				met = "yes"
			}
			lines = append(lines, fmt.Sprintf("| %s | %s | **%s** | %s–%s | %s |", t.title, t, number(s.Median), number(s.Min), number(s.Max), met))
		} else if why := t.whyNot(r.Missing); why != "" {
			lines = append(lines, fmt.Sprintf("| %s | %s | not available: %s | | |", t.title, t, why))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n| | Target | Median | Min–max | Met |\n|---|---:|---:|---:|---|\n%s\n", strings.Join(lines, "\n"))
	}
}

// costColumns are the figures that stand beside a rate, by their keys.
var costColumns = []struct{ key, head string }{
	{"settled_p50", "Submit to settled, p50, ms"}, {"settled_p99", "p99, ms"},
	{"wal", "WAL, bytes"}, {"transactions", "Commits per 1,000"}, {"dead", "Dead rows"},
	{"cpu_node", "CPU of the node, µs"}, {"cpu_postgres", "of Postgres"}, {"cpu_worker", "of the worker"},
	{"cpu_submitter", "of the client"}, {"cpu_all", "of all"}, {"cores_busy", "Cores busy"}, {"cpu_bound", "All cores ÷ CPU of all"},
}

// writeCosts writes a line for each scenario whose rate or CPU time was measured, and what
// each task of it costs.
func (r *report) writeCosts(w io.Writer) {
	fmt.Fprint(w, "\n| For each task | Rate |")
	for _, c := range costColumns {
		fmt.Fprintf(w, " %s |", c.head)
	}
	fmt.Fprintf(w, "\n|---|---:|%s\n", strings.Repeat("---:|", len(costColumns)))
	for _, one := range scenarios {
		rate := r.series(one.name + ".rate")
		switch {
		case rate != nil:
			fmt.Fprintf(w, "| %s | %s %s |", one.title, number(rate.Median), rate.Unit)
		case r.series(one.name+".cpu_all") != nil:
			fmt.Fprintf(w, "| %s | – |", one.title)
		default:
			continue
		}
		for _, c := range costColumns {
			text := "–"
			if s := r.series(one.name + "." + c.key); s != nil {
				text = number(s.Median)
			}
			fmt.Fprintf(w, " %s |", text)
		}
		fmt.Fprintln(w)
	}
	for _, one := range scenarios {
		if why, ok := r.Missing[one.name]; ok {
			fmt.Fprintf(w, "| %s | not available: %s |%s\n", one.title, why, strings.Repeat(" |", len(costColumns)))
		}
	}
}

// writeOthers writes the figures that stand in neither of the other tables; those that are
// always 0, such as tasks that came twice, are in the JSON alone.
func (r *report) writeOthers(w io.Writer) {
	fmt.Fprint(w, "\n| Other figures | Unit | Median | Min–max |\n|---|---|---:|---:|\n")
	for _, one := range scenarios {
		for _, s := range r.Figures {
			key, ok := strings.CutPrefix(s.Key, one.name+".")
			isCost := func(c struct{ key, head string }) bool { return c.key == key }
			isTarget := func(t target) bool { return t.key == s.Key }
			if !ok || key == "rate" || s.Max == 0 || slices.ContainsFunc(costColumns, isCost) || slices.ContainsFunc(targets, isTarget) {
				continue
			}
			fmt.Fprintf(w, "| %s: %s | %s | **%s** | %s–%s |\n", one.title, s.Name, s.Unit, number(s.Median), number(s.Min), number(s.Max))
		}
	}
}
