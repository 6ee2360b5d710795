package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// config says what the rounds measure, and for how long.
type config struct {
	options
	only        names
	rounds      int
	tasks       int           // of the throughput measurements, each round
	expiring    int           // tasks that expire at once
	latencyTime time.Duration // how long tasks trickle in
	httpTime    time.Duration // how long round trips are counted
}

func parseRounds(args []string) (config, error) {
	cfg := config{latencyTime: 10 * time.Second, httpTime: 3 * time.Second}
	const short = "one round of 3,000 tasks, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.Var(&cfg.only, "only", "scenarios, such as post,river-post; default: all")
		f.IntVar(&cfg.rounds, "rounds", 5, "how often everything is measured")
		f.IntVar(&cfg.tasks, "tasks", 60000, "tasks of a round")
		f.IntVar(&cfg.expiring, "expiring", 100_000, "tasks that expire at once")
	})
	if err != nil {
		return cfg, err
	}
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.expiring = 1, 3000, 40_000
		cfg.latencyTime, cfg.httpTime = 2*time.Second, time.Second
	}
	const unit = 30 * rig.BatchSize // so that the parts of it are whole batches
	if cfg.rounds < 1 || cfg.tasks < unit {
		return cfg, fmt.Errorf("--rounds must be at least 1 and --tasks at least %d", unit)
	}
	if cfg.expiring < rig.BatchSize {
		return cfg, fmt.Errorf("--expiring must be at least %d", rig.BatchSize)
	}
	cfg.expiring -= cfg.expiring % rig.BatchSize
	cfg.tasks -= cfg.tasks % unit
	_, err = chosen(cfg.only)
	return cfg, err
}

// rounds measures scenarios again and again.
type rounds struct {
	*rig.Rig
	config
	comparing bool     // two revisions: a scenario measures no counterpart of its own
	scenario  scenario // that begins, while it does
	mostRate  float64  // tasks/s that the scenario post reached last; 0: not measured
	counted   []counted
	shared    map[string]*manyRig // shared by several scenarios, by name
}

// started is a begun scenario.
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
	b, err := cfg.start(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()
	r := &rounds{Rig: b, config: cfg}
	all := result{Machine: describe(b), Tasks: cfg.tasks, Short: cfg.short}
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
		all.Figures.Add(figures)
	}
	dead, err := r.deadRows(ctx)
	if err != nil {
		return err
	}
	all.Figures.Add(dead)
	all.writeMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, all)
}

// beginAll begins the scenarios. Of those that aren't available, it returns the reason by name.
func (r *rounds) beginAll(
	ctx context.Context,
) (begun []started, missing map[string]string, err error) {
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

// run measures once, and refuses a result that is broken.
func (s started) run(ctx context.Context) (report.Figures, error) {
	f, err := s.measure(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if err = f.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return f, nil
}

// round measures everything, every other time in the reverse order: other work on the machine
// disturbs all scenarios alike.
func (r *rounds) round(ctx context.Context, n int, begun []started) (report.Figures, error) {
	turns := byTurns(begun, r.short)
	if n%2 == 1 {
		slices.Reverse(turns)
	}
	measured := map[string][]report.Figures{}
	for _, s := range turns {
		f, err := s.run(ctx)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s: %s %s\n",
			n+1, r.config.rounds, s.name, report.Number(f[0].Value), f[0].Unit)
		measured[s.name] = append(measured[s.name], f)
	}
	var all report.Figures
	for _, s := range begun {
		for _, f := range report.MeanOf(measured[s.name]) {
			f.Key = s.name + "." + f.Key
			all = append(all, f)
		}
	}
	return append(all, ratios(all)...), nil
}

// byTurns lists scenarios as often as they get their turn: those side by side with several turns
// one after the other, and then the other way round. In a short run each gets one turn.
func byTurns(begun []started, short bool) (order []started) {
	for len(begun) > 0 {
		n := 1
		for n < len(begun) && begun[n].times == begun[0].times {
			n++
		}
		beside := slices.Clone(begun[:n])
		begun = begun[n:]
		for range beside[0].times {
			order = append(order, beside...)
			if slices.Reverse(beside); short {
				break
			}
		}
	}
	return order
}
