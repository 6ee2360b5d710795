package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

// config is what the rounds measure and for how long.
type config struct {
	options
	rounds  int
	tasks   int           // of the throughput measurements, each round
	latency time.Duration // how long tasks trickle in
	rawHTTP time.Duration // how long round trips are counted
}

func parseRounds(args []string) (config, error) {
	cfg := config{latency: 10 * time.Second, rawHTTP: 3 * time.Second}
	err := cfg.parse(args, "one round of 10,000 tasks, to see that nothing is broken", func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 5, "how often everything is measured")
		f.IntVar(&cfg.tasks, "tasks", 60000, "tasks of a round")
	})
	if err != nil {
		return cfg, err
	}
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.latency, cfg.rawHTTP = 1, 10000, 3*time.Second, time.Second
	}
	if cfg.rounds < 1 || cfg.tasks < batchSize {
		return cfg, fmt.Errorf("--rounds must be at least 1 and --tasks at least %d", batchSize)
	}
	cfg.tasks -= cfg.tasks % batchSize
	return cfg, nil
}

// runRounds starts everything, measures, and reports.
func runRounds(ctx context.Context, args []string) error {
	cfg, err := parseRounds(args)
	if err != nil {
		return err
	}
	b, err := start(ctx, cfg.options)
	if err != nil {
		return err
	}
	defer b.stop()
	r := report{Machine: describeMachine(), Tasks: cfg.tasks}
	if r.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	p, err := b.register(ctx, "bench", "")
	if err != nil {
		return err
	}
	if err := b.prepareStore(ctx); err != nil {
		return err
	}
	if err := b.warmUp(ctx, p); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	for n := range cfg.rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", n+1, cfg.rounds)
		figures, err := b.round(ctx, cfg, p)
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		r.add(figures)
	}
	r.writeMarkdown(os.Stdout)
	return writeJSON(cfg.json, r)
}
