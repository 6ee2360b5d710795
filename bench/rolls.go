package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// rollRows is the number of tasks of a roll here; in use they are millions.
const rollRows = 2000

// rollsConfig says how much is measured.
type rollsConfig struct {
	options
	rounds  int
	lasting time.Duration // of each type's turn in a round
}

func parseRolls(args []string) (rollsConfig, error) {
	var cfg rollsConfig
	const short = "one round of a few seconds, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 5, "how often both are measured")
		f.DurationVar(&cfg.lasting, "lasting", 20*time.Second, "for how long, each time")
	})
	if cfg.short {
		cfg.rounds, cfg.lasting = 1, 8*time.Second
	}
	if err == nil && (cfg.rounds < 1 || cfg.lasting < time.Second) {
		err = errors.New("--rounds must be at least 1 and --lasting at least 1s")
	}
	return cfg, err
}

// runRolls asks: do submits take longer while tables roll? It submits at full speed, by turns to a
// type with tables that roll again and again and to one with tables that don't.
func runRolls(ctx context.Context, args []string) error {
	cfg, err := parseRolls(args)
	if err != nil {
		return err
	}
	what := cfg.rig()
	what.NodeArgs = []string{"--job", "roll=@every 1s"}
	r, err := rig.Start(ctx, what)
	if err != nil {
		return err
	}
	defer r.Stop()
	g := report.Grid{Machine: describe(r), By: fmt.Sprintf("Submits of %d", rig.BatchSize)}
	var types []*rollingType
	for _, of := range []struct{ name, more string }{
		{"still", ""},
		{"rolling", fmt.Sprintf(`"roll_rows":%d,`, rollRows)},
	} {
		t, err := registerWarm(ctx, r, of.name, rig.Shape{More: of.more})
		if err != nil {
			return err
		}
		types = append(types, &rollingType{TaskType: t})
		g.Columns = append(g.Columns, of.name)
	}
	for n := range cfg.rounds {
		for turn := range types {
			t := types[(n+turn)%len(types)]
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, cfg.rounds, t.Name)
			if err := t.round(ctx, r, cfg.lasting); err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, t.Name, err)
			}
		}
	}
	for _, t := range types {
		medians := t.rounds.Medians()
		medians.Add("rolls", "Rolls", "", float64(t.rolls))
		g.Add(medians)
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// rollingType is a type and what was measured of it.
type rollingType struct {
	*rig.TaskType
	rounds report.Rounds
	rolls  int // that the type got
}

func (t *rollingType) round(ctx context.Context, r *rig.Rig, lasting time.Duration) error {
	if err := r.DB.Checkpoint(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	var took []float64 // ms
	start, before := time.Now(), t.Submitted
	err := r.Feed(ctx, t.TaskType, start.Add(lasting), func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, float64(d)/1e6)
	})
	if err != nil {
		return err
	}
	if err := r.Finish(ctx, t.TaskType); err != nil {
		return err
	}
	var all report.Figures
	all.Add("rate", "End to end", "tasks/s",
		float64(t.Submitted-before)/time.Since(start).Seconds())
	all.Add("p50", "Submit, p50", "ms", report.Percentile(took, 50))
	all.Add("p99", "Submit, p99", "ms", report.Percentile(took, 99))
	all.Add("max", "Submit, at most", "ms", report.Percentile(took, 100))
	t.rounds.Add(all)
	return r.DB.Conn.QueryRow(ctx, `
		SELECT s.end_pos FROM `+rig.Schema+`.task_types t
		JOIN `+rig.Schema+`.table_sets s ON s.name = t.table_set
		WHERE t.name = $1`, t.Name).Scan(&t.rolls)
}
