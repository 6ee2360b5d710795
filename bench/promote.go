package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// promoteConfig says how many tasks are due at once.
type promoteConfig struct {
	options
	tasks int
}

func parsePromote(args []string) (promoteConfig, error) {
	var cfg promoteConfig
	err := cfg.parse(args, "20,000 tasks, to see that nothing is broken", func(f *flag.FlagSet) {
		f.IntVar(&cfg.tasks, "tasks", 1_000_000, "tasks that are due in the same minute")
	})
	if cfg.short {
		cfg.tasks = 20_000
	}
	if err == nil && cfg.tasks < batchSize {
		err = fmt.Errorf("--tasks must be at least %d", batchSize)
	}
	return cfg, err
}

// runPromote measures what happens when very many delayed tasks are due at once: how fast
// they are done, and how quickly tasks of another type still arrive.
func runPromote(ctx context.Context, args []string) error {
	cfg, err := parsePromote(args)
	if err != nil {
		return err
	}
	b, err := start(ctx, cfg.options)
	if err != nil {
		return err
	}
	defer b.stop()
	t := timeline{Machine: describeMachine(), Notes: []string{fmt.Sprintf("%s tasks are due in the same minute.", number(float64(cfg.tasks)))}}
	if t.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	var pipes []*pipe
	for _, name := range []string{"crowd", "other"} {
		p, err := b.register(ctx, name, "")
		if err == nil {
			err = b.warmUp(ctx, p)
		}
		if err != nil {
			return err
		}
		pipes = append(pipes, p)
	}
	if err := b.db.fillWait(ctx, pipes[0].name, b.take(pipes[0], cfg.tasks), cfg.tasks); err != nil {
		return fmt.Errorf("delayed tasks: %w", err)
	}
	if err := b.watchCrowd(ctx, cfg.tasks, pipes[1], &t); err != nil {
		return err
	}
	t.writeMarkdown(os.Stdout)
	return writeJSON(cfg.json, t)
}

// watchCrowd samples until all have arrived.
func (b *bench) watchCrowd(ctx context.Context, tasks int, other *pipe, t *timeline) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(tasks)*slowest+2*time.Minute)
	defer cancel()
	const period = 5 * time.Second
	start := time.Now()
	for {
		before, err := b.reading(ctx)
		if err != nil {
			return err
		}
		latencies, err := b.latency(ctx, other, period)
		if err != nil {
			return err
		}
		after, err := b.reading(ctx)
		if err != nil {
			return err
		}
		var waiting, ready float64
		if err := b.db.conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM `+schema+`.wait_crowd), (SELECT count(*) FROM `+schema+`.ready_crowd_1)`).Scan(&waiting, &ready); err != nil {
			return err
		}
		n := after.counts.Distinct - before.counts.Distinct
		t.add(time.Since(start).Seconds(), append(figures{
			{"rate", "Delivered", "tasks/s", float64(n) / period.Seconds()},
			{"waiting", "Waiting", "thousands", waiting / 1e3}, {"ready", "Ready", "thousands", ready / 1e3}}, latencies...))
		if waiting+ready == 0 {
			return nil
		}
	}
}

// fillWait writes delayed tasks that are due within the next minute, with the numbers of
// the bench from first on.
func (d *database) fillWait(ctx context.Context, taskType string, first, tasks int) error {
	return pgx.BeginFunc(ctx, d.conn, func(tx pgx.Tx) error {
		var id int64
		err := tx.QueryRow(ctx, `UPDATE `+schema+`.rolls SET next_number = next_number + $2 WHERE type = $1 RETURNING (position::bigint << 40) + next_number - $2`, taskType, tasks).Scan(&id)
		if err != nil {
			return err
		}
		for _, sql := range []string{
			`INSERT INTO ` + schema + `.task_` + taskType + `_1 (id, created_at, order_time, context)
				SELECT $1::bigint + n, now(), now() + interval '90 s', ('{"n":' || $2::bigint + n || ',"pad":"' || repeat('x', 172) || '"}')::json FROM generate_series(0, $3::bigint - 1) n`,
			`INSERT INTO ` + schema + `.wait_` + taskType + ` (id, seq, stage, attempt, order_time, reason, until)
				SELECT $1::bigint + n, 1, 'call', 1, now() + interval '90 s', 'delay', now() + interval '90 s' FROM generate_series(0, $3::bigint - 1) n WHERE $2::bigint >= 0`,
		} {
			if _, err := tx.Exec(ctx, sql, id, first, tasks); err != nil {
				return err
			}
		}
		return nil
	})
}
