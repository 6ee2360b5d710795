package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// config is what the rounds measure and for how long.
type config struct {
	options
	only        names
	rounds      int
	tasks       int           // of the throughput measurements, each round
	latencyTime time.Duration // how long tasks trickle in
	httpTime    time.Duration // how long round trips are counted
}

func parseRounds(args []string) (config, error) {
	cfg := config{latencyTime: 10 * time.Second, httpTime: 3 * time.Second}
	err := cfg.parse(args, "one round of 5,000 tasks, to see that nothing is broken", func(f *flag.FlagSet) {
		f.Var(&cfg.only, "only", "scenarios, such as post,river-post; default: all")
		f.IntVar(&cfg.rounds, "rounds", 5, "how often everything is measured")
		f.IntVar(&cfg.tasks, "tasks", 60000, "tasks of a round")
	})
	if err != nil {
		return cfg, err
	}
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.latencyTime, cfg.httpTime = 1, 5000, 2*time.Second, time.Second
	}
	if cfg.rounds < 1 || cfg.tasks < 30*batchSize {
		return cfg, fmt.Errorf("--rounds must be at least 1 and --tasks at least %d", 30*batchSize)
	}
	cfg.tasks -= cfg.tasks % (30 * batchSize) // the parts of it are whole batches
	_, err = chosen(cfg.only)
	return cfg, err
}

// rounds is a run of all scenarios, again and again.
type rounds struct {
	*bench
	config
	number   int      // of the round
	scenario scenario // that begins, while it does
	mostRate float64  // tasks/s that the scenario post has reached last; 0: not measured
	counted  []counted
}

// started is a scenario that has begun.
type started struct {
	scenario
	measure measure
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
	r := &rounds{bench: b, config: cfg}
	all := report{Machine: describeMachine(), Tasks: cfg.tasks, Short: cfg.short}
	if all.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	begun, missing, err := r.beginAll(ctx)
	if err != nil {
		return err
	}
	all.Missing = missing
	for n := range cfg.rounds {
		figures, err := r.round(ctx, n, begun)
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		all.add(figures)
	}
	dead, err := r.deadRows(ctx)
	if err != nil {
		return err
	}
	all.add(dead)
	all.writeMarkdown(os.Stdout)
	return writeJSON(cfg.json, all)
}

// beginAll begins the scenarios, and tells of those that aren't available, with the reason.
func (r *rounds) beginAll(ctx context.Context) (begun []started, missing map[string]string, err error) {
	some, err := chosen(r.only)
	missing = map[string]string{}
	for _, s := range some {
		fmt.Fprintf(os.Stderr, "bench: begin %s\n", s.name)
		r.scenario = s
		m, err := s.begin(ctx, r)
		if why := whyNot(err); why != "" {
			fmt.Fprintf(os.Stderr, "bench: %s: not available: %s\n", s.name, why)
			missing[s.name] = why
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.name, err)
		}
		begun = append(begun, started{s, m})
	}
	r.scenario = scenario{}
	return begun, missing, err
}

// round measures everything: every other time in the reverse order, so that what else the
// machine does hits all alike.
func (r *rounds) round(ctx context.Context, n int, begun []started) (figures, error) {
	r.number = n
	turns := byTurns(begun, r.config.short)
	if n%2 == 1 {
		slices.Reverse(turns)
	}
	measured := map[string][]figures{}
	for _, s := range turns {
		f, err := s.measure(ctx)
		if err == nil {
			err = f.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s: %s %s\n", n+1, r.config.rounds, s.name, number(f[0].value), f[0].unit)
		measured[s.name] = append(measured[s.name], f)
	}
	var all figures
	for _, s := range begun {
		for _, f := range meanOf(measured[s.name]) {
			f.key = s.name + "." + f.key
			all = append(all, f)
		}
	}
	return append(all, ratios(all)...), nil
}

// byTurns lists scenarios as often as they have their turn: those side by side with several
// turns one after the other, and then the other way round. In a short run each has one.
func byTurns(begun []started, short bool) (turns []started) {
	for len(begun) > 0 {
		n := 1
		for n < len(begun) && begun[n].turns == begun[0].turns {
			n++
		}
		beside := slices.Clone(begun[:n])
		begun = begun[n:]
		for range beside[0].turns {
			turns = append(turns, beside...)
			if slices.Reverse(beside); short {
				break
			}
		}
	}
	return turns
}
