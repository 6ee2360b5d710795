package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// sustainedConfig says for how long it goes on.
type sustainedConfig struct {
	options
	lasting time.Duration
}

func parseSustained(args []string) (sustainedConfig, error) {
	var cfg sustainedConfig
	err := cfg.parse(args, "30 s, to see that nothing is broken", func(f *flag.FlagSet) {
		f.DurationVar(&cfg.lasting, "lasting", 20*time.Minute, "for how long tasks are submitted as fast as they are done")
	})
	if cfg.short {
		cfg.lasting = 30 * time.Second
	}
	if err == nil && cfg.lasting < time.Second {
		err = fmt.Errorf("--lasting must be at least 1s")
	}
	return cfg, err
}

// runSustained measures whether what is so in the first minute is so for long: rate,
// CPU, WAL, the sizes of the tables and their dead rows.
func runSustained(ctx context.Context, args []string) error {
	cfg, err := parseSustained(args)
	if err != nil {
		return err
	}
	b, err := start(ctx, cfg.options)
	if err != nil {
		return err
	}
	defer b.stop()
	t := timeline{Machine: describeMachine(), Notes: []string{fmt.Sprintf("Tasks are submitted as fast as they are done, for %s.", cfg.lasting)}}
	if t.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	p, err := b.register(ctx, "bench", "")
	if err != nil {
		return err
	}
	if err := b.warmUp(ctx, p); err != nil {
		return err
	}
	if err := b.sustain(ctx, p, cfg.lasting, &t); err != nil {
		return err
	}
	t.writeMarkdown(os.Stdout)
	err = t.plot(cfg.plots,
		chart{file: "sustained-rate", title: "Rate of a long run", y: "tasks/s", keys: []string{"rate"}},
		chart{file: "sustained-live", title: "Small tables and dead rows of a long run", y: "MB, thousands", keys: []string{"live", "dead"}})
	if err != nil {
		return err
	}
	return writeJSON(cfg.json, t)
}

// sustain submits for a while, and sees to it that everything is done in the end.
func (b *bench) sustain(ctx context.Context, p *pipe, lasting time.Duration, t *timeline) error {
	end := time.Now().Add(lasting)
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return b.feed(running, p, end, nil) })
	g.Go(func() error { return b.sampleSustained(running, p, end, max(lasting/100, time.Second), t) })
	if err := g.Wait(); err != nil {
		return err
	}
	return b.finish(ctx, p)
}

func (b *bench) sampleSustained(ctx context.Context, p *pipe, end time.Time, period time.Duration, t *timeline) error {
	start := time.Now()
	before, err := b.reading(ctx)
	if err != nil {
		return err
	}
	for last := start; last.Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(period):
		}
		after, err := b.reading(ctx)
		if err != nil {
			return err
		}
		s, err := b.db.sizes(ctx, p.name)
		if err != nil {
			return err
		}
		now := time.Now()
		n := after.counts.Distinct - before.counts.Distinct
		t.add(now.Sub(start).Seconds(), figures{
			{"rate", "Rate", "tasks/s", float64(n) / now.Sub(last).Seconds()},
			{"cpu_node", "CPU of the node", "µs/task", micros(after.usage.node-before.usage.node, n)},
			{"cpu_postgres", "CPU of Postgres", "µs/task", micros(after.usage.postgres-before.usage.postgres, n)},
			{"wal", "WAL", "bytes/task", float64(after.written.wal-before.written.wal) / float64(n)},
			{"history", "Tasks and journal", "MB", s.history},
			{"live", "Small tables", "MB", s.live},
			{"dead", "Dead rows of those", "thousands", s.dead},
			{"memory", "Memory of the node", "MB", residentMemory(b.nodes[0].pid())},
		})
		before, last = after, now
	}
	return nil
}

// tableSizes are the sizes of a type's tables.
type tableSizes struct {
	history, live float64 // MB, with indexes
	dead          float64 // thousands of dead rows in the small tables
}

func (d *database) sizes(ctx context.Context, taskType string) (s tableSizes, err error) {
	sum := func(kinds ...string) string {
		return `c.relname ~ '^(` + strings.Join(kinds, "|") + `)_` + taskType + `(_[0-9]+)?$'`
	}
	live := sum("ready", "lease", "wait")
	err = d.conn.QueryRow(ctx, `
		SELECT coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE `+sum("task", "journal")+`), 0)::float8 / 1e6,
		  coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE `+live+`), 0)::float8 / 1e6,
		  coalesce(sum(pg_stat_get_dead_tuples(c.oid)) FILTER (WHERE `+live+`), 0)::float8 / 1e3
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'`, schema).
		Scan(&s.history, &s.live, &s.dead)
	return s, err
}
