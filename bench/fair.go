package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// fairConfig says how many tasks and flow keys are measured.
type fairConfig struct {
	options
	rounds int
	tasks  int // of a round
	keys   int
}

func parseFair(args []string) (fairConfig, error) {
	var cfg fairConfig
	const short = "a small round, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 7, "how often each is measured")
		f.IntVar(&cfg.tasks, "tasks", 20_000, "tasks of a round")
		f.IntVar(&cfg.keys, "keys", 1000, "flow keys")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks = 1, 3000
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < rig.BatchSize || cfg.keys < 1) {
		err = fmt.Errorf("--rounds and --keys must be at least 1, --tasks at least %d",
			rig.BatchSize)
	}
	cfg.tasks -= cfg.tasks % rig.BatchSize
	return cfg, err
}

// fairFlows are the flows that are compared: neither of them blocks a task.
var fairFlows = []struct{ name, flow string }{
	{"unfair", `"flow":{"max_in_flight":1000000},`},
	{"fair", `"flow":{"fair":true},`},
}

// runFair asks: what do turns of flow keys cost? Tasks of many keys are measured by turns in a type
// with fair flow keys, and in one that has a limit which no key reaches.
func runFair(ctx context.Context, args []string) error {
	cfg, err := parseFair(args)
	if err != nil {
		return err
	}
	r, err := cfg.start(ctx)
	if err != nil {
		return err
	}
	defer r.Stop()
	g := report.Grid{Machine: describe(r), By: "Flow keys"}
	var types []*rig.TaskType
	for _, f := range fairFlows {
		t, err := r.Register(ctx, f.name, rig.Shape{More: f.flow})
		if err != nil {
			return err
		}
		types = append(types, t)
		g.Columns = append(g.Columns, f.name)
	}
	all := make([]report.Rounds, len(types))
	for n := range cfg.rounds {
		for turn := range types {
			i := (n + turn) % len(types)
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, cfg.rounds, g.Columns[i])
			f, err := fairRound(ctx, r, types[i], cfg)
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, types[i].Name, err)
			}
			all[i].Add(f)
		}
	}
	for _, rounds := range all {
		medians := rounds.Medians()
		medians.Add("change", "Against unfair", "%", 100*(rounds[0].Median/all[0][0].Median-1))
		g.Add(medians)
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// fairRound measures tasks of all keys, from the first submit to the last arrival.
func fairRound(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, cfg fairConfig,
) (all report.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience(cfg.tasks))
	defer cancel()
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return nil, err
	}
	if err := submitKeys(ctx, r, t, cfg); err != nil {
		return nil, err
	}
	arrived := 0
	err = rig.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		c, err := r.WorkerCounts(ctx)
		arrived = c.Distinct - meter.Before.Distinct
		return arrived >= cfg.tasks, err
	})
	if err != nil {
		return nil, errors.Join(err, fmt.Errorf("%d of %d tasks have arrived", arrived, cfg.tasks))
	}
	cost, err := meter.Stop(ctx)
	all.Add("rate", "Tasks of all keys", "tasks/s", cost.Rate(cfg.tasks))
	all = append(all, cost.CPUFigures(cfg.tasks)...)
	return all, errors.Join(err, all.Check())
}

// submitKeys submits the tasks, batches of one key each, by several submitters at once.
func submitKeys(ctx context.Context, r *rig.Rig, t *rig.TaskType, cfg fairConfig) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(rig.Submitters)
	for batch := range cfg.tasks / rig.BatchSize {
		items := r.Take(t, rig.BatchSize)
		g.Go(func() error {
			more := fmt.Sprintf(`"flow_key":"key-%d",`, batch%cfg.keys)
			return r.API.SubmitBatch(ctx, t.Name, items, more)
		})
	}
	return g.Wait()
}
