package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// poolsConfig says which sizes of the pool of hot connections are measured, and how much.
type poolsConfig struct {
	config
	hot sizes
}

func parsePools(args []string) (poolsConfig, error) {
	cfg := poolsConfig{
		config: config{latencyTime: 10 * time.Second},
		hot:    sizes{2, 4, 8, 16, 32},
	}
	const short = "one small round with two sizes, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.Var(&cfg.hot, "hot", "hot connections of the node, such as 4,8")
		f.IntVar(&cfg.rounds, "rounds", 3, "how often each is measured")
		f.IntVar(&cfg.tasks, "tasks", 60_000, "tasks of a round")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.latencyTime, cfg.hot = 1, 3000, 2*time.Second, sizes{2, 8}
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < singlePart*rig.BatchSize || len(cfg.hot) == 0) {
		err = errors.New("--rounds must be at least 1, --tasks at least 300")
	}
	return cfg, err
}

// runPools asks: how many hot connections should a node use? It measures rates and latencies with
// several sizes of their pool, of one task type and of many.
func runPools(ctx context.Context, args []string) error {
	cfg, err := parsePools(args)
	if err != nil {
		return err
	}
	r := rig.New(cfg.options.rig())
	if err := r.Begin(ctx, r.StartPostgres, r.Build); err != nil {
		return err
	}
	defer r.Stop()
	p, err := newPools(ctx, r, cfg)
	if err != nil {
		return err
	}
	all := make([]report.Rounds, len(cfg.hot))
	for n := range cfg.rounds {
		for turn := range all {
			i := turn
			if n%2 == 1 {
				i = len(all) - 1 - turn
			}
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %d hot connections\n",
				n+1, cfg.rounds, cfg.hot[i])
			f, err := p.measure(ctx, cfg.hot[i])
			if err != nil {
				return fmt.Errorf("round %d with %d: %w", n+1, cfg.hot[i], err)
			}
			all[i].Add(f)
		}
	}
	g := report.Grid{Machine: describe(r), By: "Hot connections"}
	for i, rounds := range all {
		g.Columns = append(g.Columns, strconv.Itoa(cfg.hot[i]))
		g.Add(rounds.Medians())
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// pools is a database with one type and another with many. Each gets a node while it is measured.
type pools struct {
	config
	one      *rig.Rig
	taskType *rig.TaskType
	many     *manyRig
}

func newPools(ctx context.Context, r *rig.Rig, cfg poolsConfig) (p pools, err error) {
	p.config = cfg.config
	if p.one, err = r.Side(ctx, "one", r.Binary); err != nil {
		return p, err
	}
	err = p.one.WithNode(ctx, func(ctx context.Context) (err error) {
		if err = p.one.MakeTenant(ctx); err != nil {
			return err
		}
		p.taskType, err = p.one.Register(ctx, "bench", rig.Shape{})
		return err
	})
	if err != nil {
		return p, err
	}
	types, tenants := p.config.many()
	p.many, err = newManyRig(ctx, r, "many", types, tenants)
	return p, err
}

// measure measures new nodes with that many hot connections.
func (p pools) measure(ctx context.Context, hot int) (all report.Figures, err error) {
	flags := []string{"--hot-pool", strconv.Itoa(hot)}
	p.one.NodeArgs, p.many.NodeArgs = flags, flags
	add := func(key, name string, of report.Figures) {
		for _, f := range of {
			switch f.Key {
			case "rate", "submit_mean", "latency_p50", "latency_p99", "cpu_all":
				all.Add(key+"_"+f.Key, name+": "+f.Name, f.Unit, f.Value)
			}
		}
	}
	err = p.one.WithNode(ctx, func(ctx context.Context) error {
		if err := p.one.WarmUp(ctx, p.taskType); err != nil {
			return err
		}
		batches, err := p.one.Measure(ctx, p.taskType, p.tasks)
		if err != nil {
			return err
		}
		add("batches", "One type, submits of 100", batches)
		singly, err := measureSingly(ctx, p.one, p.taskType, p.tasks/singlePart)
		if err != nil {
			return err
		}
		add("one", "One type, single submits", singly)
		quiet, err := p.one.Latency(ctx, p.taskType, p.latencyTime)
		add("quiet", "One type, 100 tasks/s", quiet)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = p.many.WithNode(ctx, func(ctx context.Context) error {
		singly, err := p.many.measureSingly(ctx, p.tasks/singlePart, anyOf)
		if err != nil {
			return err
		}
		add("many", "Many types, single submits", singly)
		quiet, err := p.many.measureTrickle(ctx, typesRate, p.many.count,
			int(typesRate*p.latencyTime.Seconds()))
		add("types", "Many types, 200 tasks/s", quiet)
		return err
	})
	return all, err
}
