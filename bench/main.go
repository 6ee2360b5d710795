package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config is what a run measures and for how long.
type config struct {
	rounds  int
	tasks   int           // of the throughput measurements, each round
	latency time.Duration // how long tasks trickle in
	rawHTTP time.Duration // how long round trips are counted
	binary  string        // the asyncflow to measure; empty: build it
	json    string        // file for the figures; empty: none
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is main, or one of the processes that it starts from its own program.
func run(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case workerMode:
			return runWorker(os.Stdin, os.Stdout)
		case reaperMode:
			return runReaper(os.Stdin, args[1:])
		}
	}
	cfg, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return measure(ctx, cfg)
}

func parse(args []string, output io.Writer) (config, error) {
	cfg := config{latency: 10 * time.Second, rawHTTP: 3 * time.Second}
	short := false
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(output)
	f.IntVar(&cfg.rounds, "rounds", 5, "how often everything is measured")
	f.IntVar(&cfg.tasks, "tasks", 60000, "tasks of a round")
	f.BoolVar(&short, "short", false, "one round of 10,000 tasks, to see that nothing is broken")
	f.StringVar(&cfg.binary, "binary", "", "the asyncflow program to measure; default: build ./cmd/asyncflow")
	f.StringVar(&cfg.json, "json", "", "write the figures to this file too")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	if short {
		cfg.rounds, cfg.tasks, cfg.latency, cfg.rawHTTP = 1, 10000, 3*time.Second, time.Second
	}
	if cfg.rounds < 1 || cfg.tasks < batchSize || f.NArg() > 0 {
		return cfg, fmt.Errorf("--rounds must be at least 1 and --tasks at least %d; there are no other arguments", batchSize)
	}
	cfg.tasks -= cfg.tasks % batchSize
	return cfg, nil
}

// measure starts everything, measures, and reports.
func measure(ctx context.Context, cfg config) (err error) {
	b, err := start(ctx, cfg)
	if err != nil {
		return err
	}
	defer b.stop()
	r := report{Machine: describeMachine(), Tasks: cfg.tasks}
	if r.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	if err := b.warmUp(ctx); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	for n := range cfg.rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", n+1, cfg.rounds)
		figures, err := b.round(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		r.add(figures)
	}
	r.writeMarkdown(os.Stdout)
	if cfg.json != "" {
		return r.writeJSON(cfg.json)
	}
	return nil
}
