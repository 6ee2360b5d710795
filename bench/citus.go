package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/rawstore"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// citusConfig says how much of Citus is measured.
type citusConfig struct {
	config
	starting bool
}

func parseCitus(args []string) (citusConfig, error) {
	var cfg citusConfig
	const short = "one small round, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 3, "how often each way is measured")
		f.IntVar(&cfg.tasks, "tasks", 60_000, "tasks of a round")
		f.BoolVar(&cfg.starting, "starting", false,
			"each task starts another one, which a later transaction makes and nobody leases")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks = 1, 4000
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < 2*rig.BatchSize) {
		err = errors.New("--rounds must be at least 1, --tasks at least 200")
	}
	return cfg, err
}

// citusWay is a way of tasks to the servers that keep them.
type citusWay struct {
	name           string
	plain, through bool
	tenants        []string
}

// measuredTenants are on different workers, once they are made.
var measuredTenants = []string{"one", "two"}

var citusWays = []citusWay{
	{name: "plain Postgres", plain: true, tenants: measuredTenants[:1]},
	{name: "by the coordinator", through: true, tenants: measuredTenants[:1]},
	{name: "straight, one worker", tenants: measuredTenants[:1]},
	{name: "straight, two workers", tenants: measuredTenants},
}

// runCitus asks: what does a task cost on Citus, and does a second worker halve what each has to
// do? The store of this tree runs in this process. All servers share the cores of this machine, so
// CPU time is what counts, not the rate: what a server takes for each task bounds the tasks that
// its cores can do.
func runCitus(ctx context.Context, args []string) (err error) {
	cfg, err := parseCitus(args)
	if err != nil {
		return err
	}
	c, err := rig.StartCitus(ctx, len(measuredTenants))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	for _, url := range []string{c.Plain, c.URL} {
		if err := rawstore.PrepareWithoutRoles(ctx, url, measuredTenants...); err != nil {
			return err
		}
	}
	if err := apart(ctx, c); err != nil {
		return err
	}
	all := make([]report.Rounds, len(citusWays))
	for n := range cfg.rounds {
		for turn := range all {
			i := turn
			if n%2 == 1 {
				i = len(all) - 1 - turn
			}
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, cfg.rounds,
				citusWays[i].name)
			f, err := cfg.measure(ctx, c, citusWays[i])
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", n+1, citusWays[i].name, err)
			}
			all[i].Add(f)
		}
	}
	g := report.Grid{Machine: machine.Describe("with Citus"), By: "Way"}
	for i := range all {
		g.Columns = append(g.Columns, citusWays[i].name)
		g.Add(append(all[i].Medians(), citusRatios(all, i)...))
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// apart checks that the tenants are on different workers.
func apart(ctx context.Context, c *rig.Citus) error {
	var at []int
	for _, tenant := range measuredTenants {
		n, err := c.WorkerOf(ctx, tenant)
		if err != nil {
			return err
		}
		at = append(at, n)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(at)))) < len(at) {
		return fmt.Errorf("the tenants are on the workers %v, not on one each", at)
	}
	return nil
}

// citusRatios compares a way with others, as medians of all rounds: its CPU time with that of plain
// Postgres, and the tasks that its busiest server allows with what one worker allows.
func citusRatios(all []report.Rounds, way int) (f report.Figures) {
	ratio := func(over, under *report.Series) float64 {
		var each []float64
		for n := range over.Rounds {
			each = append(each, over.Rounds[n]/under.Rounds[n])
		}
		return report.Median(each)
	}
	f.Add("against_plain", "CPU of all servers, against plain", "×",
		ratio(all[way].Series("cpu_servers"), all[0].Series("cpu_servers")))
	f.Add("against_one", "Tasks that the busiest server allows, against one worker", "×",
		ratio(all[2].Series("cpu_busiest"), all[way].Series("cpu_busiest")))
	return f
}

// measure measures a new node that takes a way, after a tenth of the tasks to warm up.
func (cfg citusConfig) measure(
	ctx context.Context, c *rig.Citus, way citusWay,
) (all report.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience(cfg.tasks))
	defer cancel()
	url := c.URL
	if way.plain {
		url = c.Plain
	}
	first, err := rawstore.OpenWithoutRoles(ctx, url, way.tenants[0], !way.through)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	stores := []*rawstore.Store{first}
	for _, tenant := range way.tenants[1:] {
		other, err := first.Of(ctx, tenant)
		if err != nil {
			return nil, err
		}
		stores = append(stores, other)
	}
	for _, s := range stores {
		if cfg.starting {
			if err := s.StartOthers(ctx); err != nil {
				return nil, err
			}
		}
	}
	if err := cycles(ctx, stores, cfg.tasks/10); err != nil {
		return nil, err
	}
	if err := c.Checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := c.CPU()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cycles(ctx, stores, cfg.tasks); err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	after, err := c.CPU()
	if err != nil {
		return nil, err
	}
	return citusFigures(way, before, after, elapsed, cfg.tasks), nil
}

// cycles has each store do its part of the tasks.
func cycles(ctx context.Context, stores []*rawstore.Store, tasks int) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range stores {
		g.Go(func() error {
			if err := s.Cycle(ctx, tasks/len(stores)); err != nil {
				return err
			}
			return s.FollowUp(ctx)
		})
	}
	return g.Wait()
}

// citusFigures returns what was used of the servers of a way.
func citusFigures(
	way citusWay, before, after []time.Duration, elapsed time.Duration, tasks int,
) (all report.Figures) {
	names := []string{"the plain server", "the coordinator", "the first worker",
		"the second worker"}
	var sum, busiest time.Duration
	for i := range after {
		used := after[i] - before[i]
		if way.plain != (i == 0) {
			used = 0 // it has no part in this
		}
		all.Add(fmt.Sprint("cpu_", i), "CPU of "+names[i], "µs/task", rig.Micros(used, tasks))
		sum += used
		busiest = max(busiest, used)
	}
	all.Add("cpu_servers", "CPU of all servers", "µs/task", rig.Micros(sum, tasks))
	all.Add("cpu_busiest", "CPU of the busiest server", "µs/task", rig.Micros(busiest, tasks))
	all.Add("rate", "Rate", "tasks/s", float64(tasks)/elapsed.Seconds())
	return all
}
