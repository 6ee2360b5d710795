package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// sustainedConfig says for how long it goes on.
type sustainedConfig struct {
	options
	lasting time.Duration
}

func parseSustained(args []string) (sustainedConfig, error) {
	var cfg sustainedConfig
	const short = "30 s, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.DurationVar(&cfg.lasting, "lasting", 20*time.Minute,
			"for how long tasks are submitted as fast as they are done")
	})
	if cfg.short {
		cfg.lasting = 30 * time.Second
	}
	if err == nil && cfg.lasting < time.Second {
		err = errors.New("--lasting must be at least 1s")
	}
	return cfg, err
}

// runSustained asks: is the rate of the first minute that of the twentieth? It watches rate, CPU,
// WAL, the sizes of the tables and their dead rows.
func runSustained(ctx context.Context, r *rig.Rig, cfg sustainedConfig) error {
	line := report.Timeline{Machine: describe(r), Notes: []string{
		fmt.Sprintf("Tasks are submitted as fast as they are done, for %s.", cfg.lasting),
	}}
	t, err := registerWarm(ctx, r, "bench", rig.Shape{})
	if err != nil {
		return err
	}
	if err = sustain(ctx, r, t, cfg.lasting, &line); err != nil {
		return err
	}
	line.WriteMarkdown(os.Stdout)
	err = line.Plot(cfg.plots,
		report.Chart{
			File:  "sustained-rate",
			Title: "Rate of a long run",
			Y:     "tasks/s",
			Keys:  []string{"rate"},
		},
		report.Chart{
			File:  "sustained-live",
			Title: "Small tables and dead rows of a long run",
			Y:     "MB, thousands",
			Keys:  []string{"live", "dead"},
		})
	if err != nil {
		return err
	}
	return report.WriteJSON(cfg.json, line)
}

// sustain submits for a while, and checks that everything is done in the end.
func sustain(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, lasting time.Duration, line *report.Timeline,
) error {
	end, period := time.Now().Add(lasting), max(lasting/100, time.Second)
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Feed(running, t, end, nil) })
	g.Go(func() error { return sampleSustained(running, r, t, end, period, line) })
	if err := g.Wait(); err != nil {
		return err
	}
	return r.Finish(ctx, t)
}

func sampleSustained(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, end time.Time, period time.Duration,
	line *report.Timeline,
) error {
	before, err := r.Read(ctx)
	if err != nil {
		return err
	}
	for start := before.At; before.At.Before(end); {
		if !sleep.For(ctx, period) {
			return ctx.Err()
		}
		after, err := r.Read(ctx)
		if err != nil {
			return err
		}
		s, err := sizesOf(ctx, r.DB, t.Name)
		if err != nil {
			return err
		}
		cost := after.CostSince(before, after.At.Sub(before.At))
		n := cost.Distinct
		var all report.Figures
		all.Add("rate", "Rate", "tasks/s", cost.Rate(n))
		all.Add("cpu_node", "CPU of the node", "µs/task", rig.Micros(cost.Node, n))
		all.Add("cpu_postgres", "CPU of Postgres", "µs/task", rig.Micros(cost.Postgres, n))
		all.Add("wal", "WAL", "bytes/task", float64(cost.WAL)/float64(n))
		all.Add("history", "Tasks and journal", "MB", s.history)
		all.Add("live", "Small tables", "MB", s.live)
		all.Add("dead", "Dead rows of those", "thousands", s.dead)
		all.Add("memory", "Memory of the node", "MB", machine.ResidentMemory(r.Nodes[0].PID()))
		line.Add(after.At.Sub(start).Seconds(), all)
		before = after
	}
	return nil
}

// tableSizes are the sizes of the tables with a type's tasks.
type tableSizes struct {
	history, live float64 // MB, with indexes
	dead          float64 // thousands of dead rows in the small tables
}

func sizesOf(ctx context.Context, d *rig.Database, taskType string) (s tableSizes, err error) {
	sum := func(bytes, dead *float64, kinds ...string) error {
		for _, kind := range kinds {
			tables, err := d.Tables(ctx, kind, taskType)
			if err != nil {
				return err
			}
			for _, t := range tables {
				var size, rows float64
				err := d.Conn.QueryRow(ctx, `
					SELECT pg_total_relation_size(oid)::float8, pg_stat_get_dead_tuples(oid)::float8
					FROM (SELECT $1::regclass::oid) t (oid)`, t.Name).Scan(&size, &rows)
				if err != nil {
					return err
				}
				*bytes, *dead = *bytes+size/1e6, *dead+rows/1e3
			}
		}
		return nil
	}
	var ignored float64
	err = sum(&s.history, &ignored, "task", "journal")
	if err != nil {
		return s, err
	}
	err = sum(&s.live, &s.dead, "ready", "lease", "wait")
	return s, err
}
