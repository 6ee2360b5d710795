package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/bench/internal/rawstore"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// snapshotConfig says how long an old snapshot stays open.
type snapshotConfig struct {
	options
	open  time.Duration // how long
	rate  int           // tasks a second meanwhile; 0: half of what is possible
	tasks int           // to find out what is possible
}

func parseSnapshot(args []string) (snapshotConfig, error) {
	var cfg snapshotConfig
	const short = "20 s, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.DurationVar(&cfg.open, "held", 5*time.Minute, "how long the snapshot stays open")
		f.IntVar(&cfg.rate, "rate", 0, "tasks a second; default: half of what is possible")
		f.IntVar(&cfg.tasks, "tasks", 100_000, "tasks to find out what is possible")
	})
	if cfg.short {
		cfg.open, cfg.tasks = 20*time.Second, 30_000
	}
	if err == nil && (cfg.open < time.Second || cfg.rate < 0 || cfg.tasks < rig.BatchSize) {
		err = fmt.Errorf("--held must be at least 1s, --rate positive, and --tasks at least %d",
			rig.BatchSize)
	}
	cfg.tasks -= cfg.tasks % rig.BatchSize
	return cfg, err
}

// runSnapshot asks: do leases get slow while a transaction is open for minutes? The store alone
// submits, leases and settles at a steady rate, with the background jobs of a node.
func runSnapshot(ctx context.Context, args []string) (err error) {
	cfg, err := parseSnapshot(args)
	if err != nil {
		return err
	}
	r := rig.New(cfg.rig())
	if err := r.Begin(ctx, r.StartPostgres); err != nil {
		return err
	}
	defer r.Stop()
	url, err := r.MakeDatabase(ctx, storeDatabase)
	if err != nil {
		return err
	}
	if err := rawstore.Prepare(ctx, url); err != nil {
		return err
	}
	s, err := rawstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if cfg.rate == 0 {
		start := time.Now()
		if err := s.Cycle(ctx, cfg.tasks); err != nil {
			return err
		}
		cfg.rate = int(float64(cfg.tasks) / time.Since(start).Seconds() / 2)
	}
	before := max(cfg.open/10, 5*time.Second)
	t := report.Timeline{Machine: describe(r), Notes: []string{fmt.Sprintf(
		"The store alone at %s tasks/s; a snapshot is held from %s on for %s.",
		report.Number(float64(cfg.rate)), before, cfg.open)}}
	fmt.Fprintln(os.Stderr, "bench:", t.Notes[0])
	if err := underSnapshot(ctx, s, url, cfg, before, &t); err != nil {
		return err
	}
	t.WriteMarkdown(os.Stdout)
	err = t.Plot(cfg.plots,
		report.Chart{
			File:  "snapshot-lease",
			Title: "Leases while a snapshot is held",
			Y:     "ms",
			Keys:  []string{"lease_p50", "lease_p99"},
		},
		report.Chart{
			File:  "snapshot-delay",
			Title: "From due to leased while a snapshot is held",
			Y:     "ms",
			Keys:  []string{"delay_p50", "delay_p99"},
		})
	if err != nil {
		return err
	}
	return report.WriteJSON(cfg.json, t)
}

// underSnapshot submits at a rate, leases and settles, with a snapshot that is open from a time on;
// and a while longer, to see how it recovers.
func underSnapshot(
	ctx context.Context, s *rawstore.Store, url string, cfg snapshotConfig, before time.Duration,
	t *report.Timeline,
) error {
	ctx, cancel := context.WithTimeout(ctx, before+cfg.open+before)
	defer cancel()
	w := &leaseTimes{}
	s.Leased = w.add
	period := max(cfg.open/100, time.Second)
	const endless = 1 << 62
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Govern(ctx) })
	g.Go(func() error { return untilOver(ctx, s.SubmitAt(ctx, cfg.rate)) })
	g.Go(func() error { return untilOver(ctx, s.LeaseAll(ctx, endless)) })
	g.Go(func() error { return untilOver(ctx, openSnapshot(ctx, url, before, cfg.open)) })
	g.Go(func() error { return untilOver(ctx, w.sample(ctx, period, t)) })
	return g.Wait()
}

// untilOver drops the error that a loop returns because the time is over.
func untilOver(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// openSnapshot keeps a snapshot open from a time on for another. Postgres can't clean away anything
// that is deleted meanwhile.
func openSnapshot(ctx context.Context, url string, from, lasting time.Duration) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const begin = `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM asyncflow.tenants`
	for _, step := range []struct {
		after time.Duration
		sql   string
	}{{from, begin}, {lasting, `COMMIT`}} {
		if !sleep.For(ctx, step.after) {
			return ctx.Err()
		}
		if _, err := conn.Exec(ctx, step.sql); err != nil {
			return err
		}
	}
	return nil
}

// leaseTimes collects how long leases took.
type leaseTimes struct {
	mu     sync.Mutex
	took   []float64 // ms
	delays []float64 // ms from the time that a task was due until it was leased
}

func (w *leaseTimes) add(took time.Duration, leases []asyncflow.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, float64(took)/1e6)
	for _, l := range leases {
		w.delays = append(w.delays, float64(l.LeasedAt.Sub(l.OrderTime))/1e6)
	}
}

// sample adds to the timeline what was collected in each period.
func (w *leaseTimes) sample(ctx context.Context, period time.Duration, t *report.Timeline) error {
	start := time.Now()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		w.mu.Lock()
		took, delays := w.took, w.delays
		w.took, w.delays = nil, nil
		w.mu.Unlock()
		var all report.Figures
		all.Add("rate", "Leased", "tasks/s", float64(len(delays))/period.Seconds())
		all.Add("lease_p50", "Lease p50", "ms", report.Percentile(took, 50))
		all.Add("lease_p99", "Lease p99", "ms", report.Percentile(took, 99))
		all.Add("delay_p50", "Due to leased p50", "ms", report.Percentile(delays, 50))
		all.Add("delay_p99", "Due to leased p99", "ms", report.Percentile(delays, 99))
		t.Add(time.Since(start).Seconds(), all)
	}
}
