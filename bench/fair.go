package main

import (
	"context"
	"flag"
	"fmt"
	"os"

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

// fairKeys is how many flow keys are measured.
const fairKeys = 1000

func parseFair(args []string) (fairConfig, error) {
	var cfg fairConfig
	const short = "a small round, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 7, "how often each is measured")
		f.IntVar(&cfg.tasks, "tasks", 20_000, "tasks of a round")
		f.IntVar(&cfg.keys, "keys", fairKeys, "flow keys")
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

type fairFlow struct{ name, flow string }

// fairFlows are the flows that are compared: neither of them blocks a task.
var fairFlows = []fairFlow{
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
	all, err := measureByTurns(cfg.rounds, types, g.Columns,
		func(t *rig.TaskType) (report.Figures, error) {
			return fairRound(ctx, r, t, cfg.tasks, cfg.keys)
		})
	if err != nil {
		return err
	}
	addAgainstFirst(&g, all, "Against unfair")
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// unfair and fair ask the same in the rounds of the bench.
var (
	unfair = scenario{"unfair", "1,000 flow keys without turns, one POST each", fairTurns,
		keyed(fairFlows[0])}
	fair = scenario{"fair", "Fair shares of 1,000 flow keys, one POST each", fairTurns,
		keyed(fairFlows[1])}
)

// fairTurns is how often each of the two is measured in a round, with a part of its tasks.
const fairTurns = 3

func keyed(f fairFlow) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		t, err := r.Register(ctx, f.name, rig.Shape{More: f.flow})
		return func(ctx context.Context) (report.Figures, error) {
			tasks := r.config.tasks / fairTurns
			return fairRound(ctx, r.Rig, t, tasks-tasks%rig.BatchSize, fairKeys)
		}, err
	}
}

// fairRound measures tasks of all keys.
func fairRound(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks, keys int,
) (report.Figures, error) {
	return measureArrivals(ctx, r, tasks, "Tasks of all keys", func(ctx context.Context) error {
		return submitKeys(ctx, r, t, tasks, keys)
	})
}

// submitKeys submits the tasks, batches of one key each, by several submitters at once.
func submitKeys(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks, keys int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(rig.Submitters)
	for batch := range tasks / rig.BatchSize {
		items := r.Take(t, rig.BatchSize)
		g.Go(func() error {
			more := fmt.Sprintf(`"flow_key":"key-%d",`, batch%keys)
			return r.API.SubmitBatch(ctx, t.Name, items, more)
		})
	}
	return g.Wait()
}
