package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/report"
)

const (
	// tooMuch is the ratio of CPU per task above which a comparison fails, when every pair is above
	// it. Two equal trees don't come near it.
	tooMuch = 1.15
	// notable is the median ratio of CPU per task above which a row is pointed out. So is a row
	// with a rate that is lower by as much.
	notable = 1.03
)

// comparison is the result of comparing two revisions.
type comparison struct {
	Machine machine.Machine `json:"machine"`
	Base    string          `json:"base"`
	Tasks   int             `json:"tasks"`
	Figures []compared      `json:"figures"`
}

// compared is a figure of both, pair by pair.
type compared struct {
	Scenario string    `json:"scenario"`
	Key      string    `json:"key"`
	Name     string    `json:"name"`
	Unit     string    `json:"unit"`
	Base     []float64 `json:"base"`
	Head     []float64 `json:"head"`
	Ratios   []float64 `json:"ratios"` // head ÷ base
}

// comparedKeys are the figures that are compared. The first is judged.
var comparedKeys = []string{
	"cpu_all", "cpu_node", "cpu_postgres", "rate", "submit_mean", "latency_p50", "latency_p99",
}

func (c *comparison) find(scenario, key string) *compared {
	for i := range c.Figures {
		if f := &c.Figures[i]; f.Scenario == scenario && f.Key == key {
			return f
		}
	}
	return nil
}

// add adds the figures of a pair: those of the base, and the figures of this tree.
func (c *comparison) add(scenario string, pair [2]report.Figures) {
	for _, one := range pair[0] {
		head, ok := pair[1].Find(one.Key)
		if !ok || one.Value == 0 || !slices.Contains(comparedKeys, one.Key) {
			continue
		}
		f := c.find(scenario, one.Key)
		if f == nil {
			c.Figures = append(c.Figures,
				compared{Scenario: scenario, Key: one.Key, Name: one.Name, Unit: one.Unit})
			f = &c.Figures[len(c.Figures)-1]
		}
		f.Base, f.Head = append(f.Base, one.Value), append(f.Head, head)
		f.Ratios = append(f.Ratios, head/one.Value)
	}
}

// best returns the highest rate, or the least CPU time.
func (f compared) best(values []float64) float64 {
	if f.Key == "rate" {
		return slices.Max(values)
	}
	return slices.Min(values)
}

// writeMarkdown writes what is judged, the rows that stand out, and the other figures. It adds the
// ratio of the best figures: other work on the machine makes figures worse, hardly ever better.
func (c *comparison) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s. This tree against %s: medians of %d pairs of %d tasks.\n\n",
		c.Machine, c.Base, len(c.Figures[0].Ratios), c.Tasks)
	c.writeTable(w, "CPU per task", comparedKeys[:1])
	c.writeFindings(w)
	fmt.Fprintln(w)
	c.writeTable(w, "For information", comparedKeys[1:])
}

func (c *comparison) writeTable(w io.Writer, title string, keys []string) {
	fmt.Fprintf(w, "| %s | Unit | Base | This tree | Ratio | Min–max | Best ÷ best |\n", title)
	fmt.Fprint(w, "|---|---|---:|---:|---:|---:|---:|\n")
	for _, key := range keys {
		for _, f := range c.Figures {
			if f.Key == key {
				fmt.Fprintf(w, "| %s: %s | %s | %s | %s | **%.3f** | %.3f–%.3f | %.3f |\n",
					f.Scenario, f.Name, f.Unit,
					report.Number(report.Median(f.Base)), report.Number(report.Median(f.Head)),
					report.Median(f.Ratios), slices.Min(f.Ratios), slices.Max(f.Ratios),
					f.best(f.Head)/f.best(f.Base))
			}
		}
	}
}

// writeFindings points out the rows that cost more, or are of a lower rate.
func (c *comparison) writeFindings(w io.Writer) {
	var costly, slower []string
	for _, f := range c.Figures {
		ratio := report.Median(f.Ratios)
		row := fmt.Sprintf("%s (%.3f; %.3f–%.3f)",
			f.Scenario, ratio, slices.Min(f.Ratios), slices.Max(f.Ratios))
		switch {
		case f.Key == comparedKeys[0] && ratio > notable:
			costly = append(costly, row)
		case f.Key == "rate" && ratio < 1/notable:
			slower = append(slower, row)
		}
	}
	fmt.Fprintf(w, "\nCPU per task above %.2f of the base's: %s.\n", notable, listOf(costly))
	fmt.Fprintf(w, "Rate below 1 ÷ %.2f of the base's, which other work on the machine can cause: "+
		"%s.\n", notable, listOf(slower))
}

func listOf(rows []string) string {
	if len(rows) == 0 {
		return "no row"
	}
	return strings.Join(rows, ", ")
}

// verdict is an error when tasks of a scenario cost far more CPU time than before, in every pair.
// Rates are not judged: they tell more about the other work on the machine.
func (c *comparison) verdict() (err error) {
	for _, f := range c.Figures {
		if f.Key == comparedKeys[0] && slices.Min(f.Ratios) > tooMuch {
			err = errors.Join(err, fmt.Errorf(
				"%s: a task takes %.2f times the CPU time of %s, more than %.2f in every pair",
				f.Scenario, report.Median(f.Ratios), c.Base, tooMuch))
		}
	}
	return err
}
