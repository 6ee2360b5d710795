package main

import (
	"context"
	"fmt"
	"os"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// ways are several ways to run a node that are compared with each other.
type ways struct {
	by    string // what differs
	names []string
	// measure measures a new node that is run in a way.
	measure func(ctx context.Context, t *rig.TaskType, way int) (report.Figures, error)
	// against is the way with which the CPU time of the nodes of the later ways is compared, round
	// by round; -1: none.
	against int
}

// compare measures all ways once a round, every other time in reverse, so that what else the
// machine does meets all of them alike. It writes the medians.
func (w ways) compare(ctx context.Context, r *rig.Rig, cfg config) error {
	var taskType *rig.TaskType
	err := r.WithNode(ctx, func(ctx context.Context) (err error) {
		if err = r.MakeTenant(ctx); err != nil {
			return err
		}
		taskType, err = r.Register(ctx, "bench", rig.Shape{})
		return err
	})
	if err != nil {
		return err
	}
	all := make([]report.Rounds, len(w.names))
	for n := range cfg.rounds {
		for turn := range all {
			i := turn
			if n%2 == 1 {
				i = len(all) - 1 - turn
			}
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, cfg.rounds, w.names[i])
			f, err := w.measure(ctx, taskType, i)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", n+1, w.names[i], err)
			}
			all[i].Add(f)
		}
	}
	g := report.Grid{Machine: describe(r), By: w.by}
	for i := range all {
		g.Columns = append(g.Columns, w.names[i])
		g.Add(append(all[i].Medians(), w.difference(all, i)...))
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// difference returns by how much more CPU time the node of a way takes for each task, as the
// median of all rounds.
func (w ways) difference(all []report.Rounds, way int) (f report.Figures) {
	if w.against < 0 {
		return nil
	}
	base, own := all[w.against].Series("cpu_node"), all[way].Series("cpu_node")
	var percent []float64
	for n := range own.Rounds {
		percent = append(percent, 100*(own.Rounds[n]/base.Rounds[n]-1))
	}
	f.Add("cpu_node_more", "CPU of the node, against "+w.names[w.against], "%",
		report.Median(percent))
	return f
}
