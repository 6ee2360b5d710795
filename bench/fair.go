package main

import (
	"context"
	"flag"
	"fmt"
	"os"

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

// fairFlow is the flow of a type of tasks with flow keys.
type fairFlow struct{ name, flow string }

// Neither of these flows blocks a task. The type without a flow says what a flow costs at all.
var (
	unfairFlow = fairFlow{"unfair", `"flow":{"max_in_flight":1000000},`}
	turnsFlow  = fairFlow{"fair", `"flow":{"fair":true},`}
	noFlow     = fairFlow{"plain_keys", ""}
)

// runFair asks: what do turns of flow keys cost? Tasks of many keys are measured by turns in a type
// with a limit that no key reaches, in one with fair flow keys, and in one without a flow: as they
// come, and as a backlog.
func runFair(ctx context.Context, r *rig.Rig, cfg fairConfig) error {
	g := report.Grid{Machine: describe(r), By: "Flow keys",
		Columns: []string{"unfair", "fair", "no flow"}}
	var types []*rig.TaskType
	for _, f := range []fairFlow{unfairFlow, turnsFlow, noFlow} {
		t, err := registerWarm(ctx, r, f.name, rig.Shape{More: f.flow})
		if err != nil {
			return err
		}
		types = append(types, t)
	}
	all, err := measureByTurns(cfg.rounds, types, g.Columns,
		func(t *rig.TaskType) (report.Figures, error) {
			figures, err := fairRound(ctx, r, t, cfg.tasks, cfg.keys)
			if err != nil {
				return nil, err
			}
			backlog, err := fairBacklogRound(ctx, r, t, cfg.tasks, cfg.keys)
			for _, f := range backlog {
				f.Key = "backlog_" + f.Key
				f.Name = "Backlog: " + f.Name
				figures = append(figures, f)
			}
			return figures, err
		})
	if err != nil {
		return err
	}
	addAgainstFirst(&g, all, "Against unfair")
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// unfair and fair ask the same in the rounds of the bench, and so do the two with a backlog.
var (
	unfair = scenario{"unfair", "1,000 flow keys without turns, one POST each", fairTurns,
		keyed(unfairFlow, "", fairRound)}
	fair = scenario{"fair", "Fair shares of 1,000 flow keys, one POST each", fairTurns,
		keyed(turnsFlow, "", fairRound)}
	unfairBacklog = scenario{"unfair-backlog", "A backlog of 1,000 flow keys without turns",
		fairTurns, keyed(unfairFlow, "_backlog", fairBacklogRound)}
	fairBacklog = scenario{"fair-backlog", "Fair shares of a backlog of 1,000 flow keys", fairTurns,
		keyed(turnsFlow, "_backlog", fairBacklogRound)}
)

// fairTurns is how often each of the two is measured in a round, with a part of its tasks.
const fairTurns = 3

type fairMeasure func(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks, keys int,
) (report.Figures, error)

func keyed(
	f fairFlow, suffix string, measured fairMeasure,
) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		t, err := registerWarm(ctx, r.Rig, f.name+suffix, rig.Shape{More: f.flow})
		return func(ctx context.Context) (report.Figures, error) {
			tasks := r.config.tasks / fairTurns
			return measured(ctx, r.Rig, t, tasks-tasks%rig.BatchSize, fairKeys)
		}, err
	}
}

// fairRound measures tasks of all keys as they come.
func fairRound(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks, keys int,
) (report.Figures, error) {
	return measureArrivals(ctx, r, tasks, "Tasks of all keys", func(ctx context.Context) error {
		return submitKeys(ctx, r, t, tasks, keys)
	})
}

// fairBacklogRound measures tasks of all keys that are in line already: from a resume of their type
// on.
func fairBacklogRound(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks, keys int,
) (report.Figures, error) {
	if err := r.Pause(ctx, t); err != nil {
		return nil, err
	}
	if err := submitKeys(ctx, r, t, tasks, keys); err != nil {
		return nil, err
	}
	return measureArrivals(ctx, r, tasks, "Tasks of all keys", func(ctx context.Context) error {
		return r.Resume(ctx, t)
	})
}

// keyStep leads from the key of a task to that of the next one: the keys come in no order.
const keyStep = 617

// submitKeys submits the tasks, by several submitters at once. There are many keys in each batch.
func submitKeys(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks, keys int) error {
	return r.SubmitAllWith(ctx, t, tasks, func(n int) string {
		return fmt.Sprintf(`"flow_key":"key-%d",`, n*keyStep%keys)
	})
}
