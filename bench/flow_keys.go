package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// flowKeysConfig says how many tasks are blocked, and how much is measured beside them.
type flowKeysConfig struct {
	options
	rounds  int
	tasks   int // of a round
	blocked int // tasks of the other key
}

func parseFlowKeys(args []string) (flowKeysConfig, error) {
	var cfg flowKeysConfig
	const short = "a small round, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 7, "how often each is measured")
		f.IntVar(&cfg.tasks, "tasks", 20_000, "tasks of a round")
		f.IntVar(&cfg.blocked, "held", 100_000, "tasks of a flow key that is at its limit")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.blocked = 1, 3000, 5000
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < rig.BatchSize || cfg.blocked < rig.BatchSize) {
		err = fmt.Errorf("--rounds must be at least 1, --tasks and --held at least %d",
			rig.BatchSize)
	}
	cfg.tasks -= cfg.tasks % rig.BatchSize
	cfg.blocked -= cfg.blocked % rig.BatchSize
	return cfg, err
}

// keyLimit is the number of tasks of a flow key that may be in flight.
const keyLimit = 64

// runFlowKeys asks: what do tasks that their flow key blocks cost the others? The tasks of a key
// are measured by turns in a type of its own, and beside many tasks of another key that is at its
// limit.
func runFlowKeys(ctx context.Context, r *rig.Rig, cfg flowKeysConfig) error {
	g := report.Grid{Machine: describe(r), By: "Tasks of another key that are blocked"}
	var types []*rig.TaskType
	for i, name := range []string{"alone", "beside"} {
		limit := fmt.Sprintf(`"flow":{"max_in_flight":%d},`, keyLimit)
		t, err := r.Register(ctx, name, rig.Shape{More: limit})
		if err != nil {
			return err
		}
		types = append(types, t)
		g.Columns = append(g.Columns, report.Number(float64(i*cfg.blocked)))
	}
	if err := blockKey(ctx, r, types[1], cfg.blocked); err != nil {
		return fmt.Errorf("tasks that are blocked: %w", err)
	}
	all, err := measureByTurns(cfg.rounds, types, g.Columns,
		func(t *rig.TaskType) (report.Figures, error) {
			return measureArrivals(ctx, r, cfg.tasks, "Tasks of the free key",
				func(ctx context.Context) error { return submitKey(ctx, r, t, cfg.tasks, "free") })
		})
	if err != nil {
		return err
	}
	addAgainstFirst(&g, all, "Against none")
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// blockKey brings a flow key to its limit, by leases that never end, and submits tasks of it until
// all of them are blocked.
func blockKey(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error {
	_, err := r.DB.Conn.Exec(ctx, `
		INSERT INTO `+rig.Schema+`.lease
		  (type, id, seq, stage, attempt, node, leased_at, until, key)
		SELECT t.number, n, 1, 'call', 1, 'nobody', now(), now() + interval '1 day', 'stuck'
		FROM `+rig.Schema+`.task_types t, generate_series(1, $1::int) n
		WHERE t.name = $2`, keyLimit, t.Name)
	if err != nil {
		return err
	}
	if err := submitKey(ctx, r, t, tasks, "stuck"); err != nil {
		return err
	}
	return rig.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		blocked, err := r.DB.Count(ctx, "wait", t.Name)
		return blocked == tasks, err
	})
}

// submitKey submits tasks of a flow key, one batch after the other.
func submitKey(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int, key string) error {
	more := fmt.Sprintf(`"flow_key":%q,`, key)
	for range tasks / rig.BatchSize {
		if err := r.API.SubmitBatch(ctx, t.Name, r.Take(t, rig.BatchSize), more); err != nil {
			return err
		}
	}
	return nil
}
