package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

// heldConfig says how much is held, and how much is measured beside it.
type heldConfig struct {
	options
	rounds int
	tasks  int // of a round
	held   int // tasks of the other key
}

func parseHeld(args []string) (heldConfig, error) {
	var cfg heldConfig
	err := cfg.parse(args, "a small round, to see that nothing is broken", func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 7, "how often each is measured")
		f.IntVar(&cfg.tasks, "tasks", 20_000, "tasks of a round")
		f.IntVar(&cfg.held, "held", 100_000, "tasks of a flow key that is at its limit")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.held = 1, 3000, 5000
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < batchSize || cfg.held < batchSize) {
		err = fmt.Errorf("--rounds must be at least 1, --tasks and --held at least %d", batchSize)
	}
	cfg.tasks -= cfg.tasks % batchSize
	cfg.held -= cfg.held % batchSize
	return cfg, err
}

// keyLimit is how many tasks of a flow key may be under way.
const keyLimit = 64

// runHeld measures the tasks of a flow key, by turns in a type of its own and beside many
// tasks of another key that are held.
func runHeld(ctx context.Context, args []string) error {
	cfg, err := parseHeld(args)
	if err != nil {
		return err
	}
	b, err := start(ctx, cfg.options)
	if err != nil {
		return err
	}
	defer b.stop()
	g := grid{Machine: describeMachine(), By: "Tasks of another key that are held"}
	if g.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	var pipes []*pipe
	for i, name := range []string{"alone", "beside"} {
		p, err := b.register(ctx, name, fmt.Sprintf(`"flow":{"max_in_flight":%d},`, keyLimit))
		if err != nil {
			return err
		}
		pipes = append(pipes, p)
		g.Columns = append(g.Columns, number(float64(i*cfg.held)))
	}
	if err := b.hold(ctx, pipes[1], cfg.held); err != nil {
		return fmt.Errorf("tasks that are held: %w", err)
	}
	all := make([]report, len(pipes))
	for n := range cfg.rounds {
		for turn := range pipes {
			i := (n + turn) % len(pipes)
			fmt.Fprintf(os.Stderr, "bench: round %d of %d with %s held\n", n+1, cfg.rounds, g.Columns[i])
			f, err := b.besideHeld(ctx, pipes[i], cfg.tasks)
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, pipes[i].name, err)
			}
			all[i].add(f)
		}
	}
	for i := range all {
		var medians figures
		for _, s := range all[i].Figures {
			medians = append(medians, figure{s.Key, s.Name, s.Unit, s.Median})
		}
		g.add(append(medians, figure{"change", "Against none", "%", 100 * (all[i].Figures[0].Median/all[0].Figures[0].Median - 1)}))
	}
	g.writeMarkdown(os.Stdout)
	return writeJSON(cfg.json, g)
}

// hold has a flow key be at its limit by leases that nobody ends, and submits tasks of it
// until all of them are held.
func (b *bench) hold(ctx context.Context, p *pipe, tasks int) error {
	_, err := b.db.conn.Exec(ctx, `INSERT INTO `+schema+`.lease_`+p.name+` (id, seq, stage, attempt, node, leased_at, until, key)
		SELECT n, 1, 'call', 1, 'nobody', now(), now() + interval '1 day', 'stuck' FROM generate_series(1, $1::int) n`, keyLimit)
	if err != nil {
		return err
	}
	for range tasks / batchSize {
		if err := b.api.submitBatch(ctx, p.name, b.next, `"flow_key":"stuck",`); err != nil {
			return err
		}
		b.next += batchSize
	}
	return poll(ctx, 100*time.Millisecond, func() (bool, error) {
		var held int
		err := b.db.conn.QueryRow(ctx, `SELECT count(*) FROM `+schema+`.wait_`+p.name).Scan(&held)
		return held == tasks, err
	})
}

// besideHeld measures from the first submit to the last arrival.
func (b *bench) besideHeld(ctx context.Context, p *pipe, tasks int) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(tasks)*slowest+slack)
	defer cancel()
	if err := b.db.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := b.reading(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for range tasks / batchSize {
		if err := b.api.submitBatch(ctx, p.name, b.next, `"flow_key":"free",`); err != nil {
			return nil, err
		}
		b.next += batchSize
	}
	var c counts
	err = poll(ctx, 10*time.Millisecond, func() (bool, error) {
		err := b.sink.get(ctx, countPath, &c)
		return c.Distinct >= before.counts.Distinct+tasks, err
	})
	if err != nil {
		return nil, errors.Join(err, fmt.Errorf("%d of %d tasks have arrived", c.Distinct-before.counts.Distinct, tasks))
	}
	elapsed := time.Since(start)
	after, err := b.reading(ctx)
	f := append(figures{{"rate", "Tasks of the free key", "tasks/s", float64(tasks) / elapsed.Seconds()}}, cpuFigures(tasks, elapsed, after.usage.since(before.usage))...)
	return f, errors.Join(err, f.check())
}
