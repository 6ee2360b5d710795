package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// compareConfig says what is compared with what.
type compareConfig struct {
	config
	base string // a revision
}

// compareRows are the scenarios that are compared, unless --only names others; compareShort those
// of the short form.
var (
	compareRows = names{
		"post", "batch", "stages", "accepted", "single", "one", "tenants", "skew",
		"nodes", "nodes20", "nodes50", "latency", "types", "one-type", "types1500",
		"context10k", "context100k",
	}
	compareShort = names{"post", "single"}
)

func parseCompare(args []string) (compareConfig, error) {
	cfg := compareConfig{config: config{latencyTime: 10 * time.Second, expiring: 100_000}}
	const short = "four pairs of 10,000 tasks, only post and single"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.StringVar(&cfg.base, "base", "HEAD", "the revision that this tree is compared with")
		f.Var(&cfg.only, "only", "scenarios with CPU per task, such as post,single; default: all")
		f.IntVar(&cfg.rounds, "rounds", 6, "pairs of each")
		f.IntVar(&cfg.tasks, "tasks", 60000, "tasks of a measurement")
	})
	if len(cfg.only) == 0 {
		cfg.only = compareRows
		if cfg.short {
			cfg.only = compareShort
		}
	}
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.latencyTime = 4, 10_000, 2*time.Second
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < rig.BatchSize) {
		err = fmt.Errorf("--rounds must be at least 1 and --tasks at least %d", rig.BatchSize)
	}
	cfg.tasks -= cfg.tasks % rig.BatchSize
	if err != nil {
		return cfg, err
	}
	_, err = chosen(cfg.only)
	return cfg, err
}

// runCompare asks: does a task cost more than with another revision? It measures that revision and
// this tree by turns: A B, B A, and so on. Each gets a node, a worker and a database of its own in
// the same Postgres; the one that isn't in turn is idle. Both are measured by the client of this
// tree, which looks at a node's API and at its tables only.
func runCompare(ctx context.Context, args []string) error {
	cfg, err := parseCompare(args)
	if err != nil {
		return err
	}
	r := rig.New(cfg.options.rig())
	if err := r.Begin(ctx, r.StartPostgres, r.Build); err != nil {
		return err
	}
	defer r.Stop()
	base, err := r.BuildRevision(ctx, cfg.base)
	if err != nil {
		return err
	}
	c := comparison{Machine: describe(r), Base: cfg.base, Tasks: cfg.tasks}
	var sides [2]comparedSide
	for i, of := range []struct{ name, binary string }{{"base", base}, {"head", r.Binary}} {
		if sides[i], err = compareSide(ctx, r, of.name, of.binary, cfg.config); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	if err := c.measure(ctx, sides, cfg.rounds); err != nil {
		return err
	}
	c.writeMarkdown(os.Stdout)
	return errors.Join(report.WriteJSON(cfg.json, c), c.verdict())
}

// comparedSide is one of the two revisions.
type comparedSide struct {
	*rounds
	begun []started
}

func compareSide(
	ctx context.Context, r *rig.Rig, name, binary string, cfg config,
) (s comparedSide, err error) {
	side, err := r.Side(ctx, name, binary)
	if err != nil {
		return s, err
	}
	if err := side.Begin(ctx, side.StartNode, side.MakeTenant); err != nil {
		return s, err
	}
	s.rounds = &rounds{Rig: side, config: cfg, comparing: true}
	var missing map[string]string
	s.begun, missing, err = s.beginAll(ctx)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("it lacks what is to be compared: %v", missing)
	}
	return s, err
}

// measure measures pairs: every other time this tree first.
func (c *comparison) measure(ctx context.Context, sides [2]comparedSide, pairs int) error {
	for n := range pairs {
		for i, of := range sides[0].begun {
			var pair [2]report.Figures
			for turn := range sides {
				side := (turn + n) % 2
				f, err := sides[side].begun[i].run(ctx)
				if err != nil {
					return fmt.Errorf("pair %d: %w", n+1, err)
				}
				pair[side] = f
			}
			c.add(of.name, pair)
			cpu := c.find(of.name, "cpu_all")
			if cpu == nil {
				return fmt.Errorf("%s has no CPU time that could be compared", of.name)
			}
			fmt.Fprintf(os.Stderr, "bench: pair %d of %d, %s: CPU per task × %.2f\n",
				n+1, pairs, of.name, cpu.Ratios[n])
		}
	}
	return nil
}
