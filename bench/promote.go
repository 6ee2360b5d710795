package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// promoteConfig says how many tasks are due at once.
type promoteConfig struct {
	options
	tasks int
}

func parsePromote(args []string) (promoteConfig, error) {
	var cfg promoteConfig
	const short = "20,000 tasks, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.tasks, "tasks", 1_000_000, "tasks that are due in the same minute")
	})
	if cfg.short {
		cfg.tasks = 20_000
	}
	if err == nil && cfg.tasks < rig.BatchSize {
		err = fmt.Errorf("--tasks must be at least %d", rig.BatchSize)
	}
	return cfg, err
}

// runPromote asks: what happens when a million delayed tasks are due at once? It measures how fast
// they are done, and how quickly tasks of another type still arrive.
func runPromote(ctx context.Context, r *rig.Rig, cfg promoteConfig) error {
	note := fmt.Sprintf("%s tasks are due in the same minute.", report.Number(float64(cfg.tasks)))
	line := report.Timeline{Machine: describe(r), Notes: []string{note}}
	var types []*rig.TaskType
	for _, name := range []string{"delayed", "other"} {
		t, err := registerWarm(ctx, r, name, rig.Shape{})
		if err != nil {
			return err
		}
		types = append(types, t)
	}
	delayed, other := types[0], types[1]
	first := r.Take(delayed, cfg.tasks)
	if err := fillWait(ctx, r.DB, delayed.Name, first, cfg.tasks); err != nil {
		return fmt.Errorf("delayed tasks: %w", err)
	}
	if err := watchDelayed(ctx, r, delayed, other, cfg.tasks, &line); err != nil {
		return err
	}
	line.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, line)
}

// watchDelayed samples until all delayed tasks are leased.
func watchDelayed(
	ctx context.Context, r *rig.Rig, delayed, other *rig.TaskType, tasks int, t *report.Timeline,
) error {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience(tasks)+2*time.Minute)
	defer cancel()
	const period = 5 * time.Second
	start := time.Now()
	for {
		before, err := r.WorkerCounts(ctx)
		if err != nil {
			return err
		}
		latencies, err := r.Latency(ctx, other, period)
		if err != nil {
			return err
		}
		after, err := r.WorkerCounts(ctx)
		if err != nil {
			return err
		}
		waiting, err := r.DB.Count(ctx, "wait", delayed.Name)
		if err != nil {
			return err
		}
		ready, err := r.DB.Count(ctx, "ready", delayed.Name)
		if err != nil {
			return err
		}
		var all report.Figures
		delivered := float64(after.Distinct - before.Distinct)
		all.Add("rate", "Delivered", "tasks/s", delivered/period.Seconds())
		all.Add("waiting", "Waiting", "thousands", float64(waiting)/1e3)
		all.Add("ready", "Ready", "thousands", float64(ready)/1e3)
		t.Add(time.Since(start).Seconds(), append(all, latencies...))
		if waiting+ready == 0 {
			return nil
		}
	}
}

// fillWait writes delayed tasks that are due in 90 s, with the numbers of the bench from first on.
func fillWait(ctx context.Context, d *rig.Database, taskType string, first, tasks int) error {
	return pgx.BeginFunc(ctx, d.Conn, func(tx pgx.Tx) error {
		id, number, err := takeNumbers(ctx, tx, taskType, tasks)
		if err != nil {
			return err
		}
		tables, err := d.Tables(ctx, "task", taskType)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO `+tables[len(tables)-1].Name+` (type, id, created_at, order_time, context)
			SELECT $4::int, $1::bigint + n, now(), now() + interval '90 s',
			  '{"n":' || $2::bigint + n || ',"pad":"' || repeat('x', 172) || '"}'
			FROM generate_series(0, $3::bigint - 1) n`, id, first, tasks, number)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO `+rig.Schema+`.wait
			  (type, id, seq, stage, attempt, order_time, reason, until)
			SELECT $3::int, $1::bigint + n, 1, 'call', 1, now() + interval '90 s', 'delay',
			  now() + interval '90 s'
			FROM generate_series(0, $2::bigint - 1) n`, id, tasks, number)
		return err
	})
}
