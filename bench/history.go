package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// historyConfig says how long the histories are, and how much is measured on each.
type historyConfig struct {
	options
	sizes  sizes // finished tasks of each type
	rounds int
	tasks  int // of a round
	reads  int // requests of each kind
}

func parseHistory(args []string) (historyConfig, error) {
	cfg := historyConfig{sizes: sizes{0, 200_000}}
	const short = "a few small rounds, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.Var(&cfg.sizes, "sizes", "finished tasks of each type, such as 0,1000000,10000000")
		f.IntVar(&cfg.rounds, "rounds", 6, "how often the rate is measured for each type")
		f.IntVar(&cfg.tasks, "tasks", 30000, "tasks of a round")
		f.IntVar(&cfg.reads, "reads", 500, "how often each kind of request is sent")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.reads = 2, 5000, 20
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < rig.BatchSize || cfg.reads < 1) {
		err = fmt.Errorf("--rounds and --reads must be at least 1 and --tasks at least %d",
			rig.BatchSize)
	}
	cfg.tasks -= cfg.tasks % rig.BatchSize
	return cfg, err
}

// runHistory asks: do finished tasks slow down new ones, gets and lists? For each size there is a
// task type with a history of that many finished tasks.
func runHistory(ctx context.Context, r *rig.Rig, cfg historyConfig) error {
	g := report.Grid{Machine: describe(r), By: "Finished tasks of the type"}
	var types []*rig.TaskType
	for _, size := range cfg.sizes {
		t, err := typeWithHistory(ctx, r, size)
		if err != nil {
			return fmt.Errorf("a history of %d: %w", size, err)
		}
		types = append(types, t)
		g.Columns = append(g.Columns, report.Number(float64(size)))
	}
	if err := historyRates(ctx, r, cfg, types, &g); err != nil {
		return err
	}
	for i, t := range types {
		fmt.Fprintf(os.Stderr, "bench: reads with a history of %s\n", g.Columns[i])
		figures, err := historyReads(ctx, r, t, cfg.reads)
		if err != nil {
			return fmt.Errorf("reads of %s: %w", t.Name, err)
		}
		g.Add(figures)
	}
	g.WriteMarkdown(os.Stdout)
	err := g.Plot(cfg.plots,
		report.Chart{
			File:  "history-rate",
			Title: "New tasks, by the length of the history",
			Y:     "tasks/s",
			Keys:  []string{"end_to_end"},
		},
		report.Chart{
			File:  "history-reads",
			Title: "Reads, by the length of the history",
			Y:     "ms, median",
			Keys: []string{
				"get_old_p50", "get_new_p50",
				"list_all_p50", "list_pending_p50", "list_failed_p50", "list_error_p50",
			},
		})
	if err != nil {
		return err
	}
	return report.WriteJSON(cfg.json, g)
}

func typeWithHistory(ctx context.Context, r *rig.Rig, size int) (*rig.TaskType, error) {
	t, err := r.Register(ctx, "history"+strconv.Itoa(size), rig.Shape{})
	if err != nil {
		return nil, err
	}
	if size > 0 {
		fmt.Fprintf(os.Stderr, "bench: writing a history of %s\n", report.Number(float64(size)))
		if t.History, err = fillHistory(ctx, r.DB, t.Name, size); err != nil {
			return nil, err
		}
	}
	return t, r.WarmUp(ctx, t)
}

// historyRates measures how fast new tasks are done.
func historyRates(
	ctx context.Context, r *rig.Rig, cfg historyConfig, types []*rig.TaskType, g *report.Grid,
) error {
	titles := make([]string, len(g.Columns))
	for i, size := range g.Columns {
		titles[i] = "with a history of " + size
	}
	all, err := measureByTurns(cfg.rounds, types, titles,
		func(t *rig.TaskType) (report.Figures, error) {
			p, err := r.Pass(ctx, t, cfg.tasks)
			if err != nil {
				return nil, err
			}
			return p.Figures(), nil
		})
	if err != nil {
		return err
	}
	for _, rounds := range all {
		rate, without := rounds.Series("end_to_end"), all[0].Series("end_to_end")
		change := report.NewFigure("change", "End to end, against "+g.Columns[0], "%",
			100*(rate.Median/without.Median-1))
		medians := rounds.Medians()
		g.Add(append(report.Figures{medians[0], change}, medians[1:]...))
	}
	return nil
}
