package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
)

// snapshotConfig says how long an old snapshot is held.
type snapshotConfig struct {
	options
	held  time.Duration // how long
	rate  int           // tasks a second meanwhile; 0: half of what is possible
	tasks int           // by which that is found
}

func parseSnapshot(args []string) (snapshotConfig, error) {
	var cfg snapshotConfig
	err := cfg.parse(args, "20 s, to see that nothing is broken", func(f *flag.FlagSet) {
		f.DurationVar(&cfg.held, "held", 5*time.Minute, "how long the snapshot is held")
		f.IntVar(&cfg.rate, "rate", 0, "tasks a second; default: half of what is possible")
		f.IntVar(&cfg.tasks, "tasks", 100_000, "tasks by which that is found")
	})
	if cfg.short {
		cfg.held, cfg.tasks = 20*time.Second, 30_000
	}
	if err == nil && (cfg.held < time.Second || cfg.rate < 0 || cfg.tasks < batchSize) {
		err = fmt.Errorf("--held must be at least 1s, --rate positive, and --tasks at least %d", batchSize)
	}
	cfg.tasks -= cfg.tasks % batchSize
	return cfg, err
}

// runSnapshot measures what a transaction that stays open does to leases: the store
// alone submits, leases and settles at a steady rate, and governance does its jobs.
func runSnapshot(ctx context.Context, args []string) error {
	cfg, err := parseSnapshot(args)
	if err != nil {
		return err
	}
	b := &bench{options: cfg.options}
	if err := b.begin(ctx, b.startPostgres, b.prepareStore); err != nil {
		return err
	}
	defer b.stop()
	t := timeline{Machine: describeMachine()}
	if t.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	s, err := b.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if cfg.rate == 0 {
		start := time.Now()
		if err := s.cycle(ctx, cfg.tasks); err != nil {
			return err
		}
		cfg.rate = int(float64(cfg.tasks) / time.Since(start).Seconds() / 2)
	}
	before := max(cfg.held/10, 5*time.Second)
	t.Notes = []string{fmt.Sprintf("The store alone at %s tasks/s; a snapshot is held from %s on for %s.", number(float64(cfg.rate)), before, cfg.held)}
	fmt.Fprintln(os.Stderr, "bench:", t.Notes[0])
	if err := s.steady(ctx, b, cfg, before, &t); err != nil {
		return err
	}
	t.writeMarkdown(os.Stdout)
	err = t.plot(cfg.plots, chart{file: "snapshot-lease", title: "Leases while a snapshot is held", y: "ms", keys: []string{"lease_p50", "lease_p99"}},
		chart{file: "snapshot-delay", title: "From due to leased while a snapshot is held", y: "ms", keys: []string{"delay_p50", "delay_p99"}})
	if err != nil {
		return err
	}
	return writeJSON(cfg.json, t)
}

// steady submits at a rate, leases and settles, with a snapshot that is held from a
// time on; and a while longer, to see how it recovers.
func (s *rawStore) steady(ctx context.Context, b *bench, cfg snapshotConfig, before time.Duration, t *timeline) error {
	ctx, cancel := context.WithTimeout(ctx, before+cfg.held+before)
	defer cancel()
	w := &leaseWatch{}
	s.leased = w.leased
	governor, err := governance.New(s.Store, s.committer, governance.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return governor.Run(ctx) })
	g.Go(func() error { return untilOver(ctx, s.submitAt(ctx, cfg.rate)) })
	g.Go(func() error { return untilOver(ctx, s.leaseAll(ctx, 1<<62)) })
	g.Go(func() error { return untilOver(ctx, b.holdSnapshot(ctx, before, cfg.held)) })
	g.Go(func() error { return untilOver(ctx, w.sample(ctx, max(cfg.held/100, time.Second), t)) })
	return g.Wait()
}

// untilOver takes what a loop returned at the end of the time for no error.
func untilOver(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// submitAt submits so many tasks a second, in batches.
func (s *rawStore) submitAt(ctx context.Context, rate int) error {
	var sent atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range submitters {
		g.Go(func() error {
			for {
				n := sent.Add(batchSize) - batchSize
				due := start.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(due)):
				}
				if err := s.submitBatch(ctx, int(n)); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// holdSnapshot holds a snapshot from a time on for another: nothing that is deleted
// meanwhile can be cleaned away.
func (b *bench) holdSnapshot(ctx context.Context, from, lasting time.Duration) error {
	conn, err := pgx.Connect(ctx, b.postgres.URL(storeDatabase))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, step := range []struct {
		after time.Duration
		sql   string
	}{{from, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM asyncflow.tenants`}, {lasting, `COMMIT`}} {
		if err := sleep(ctx, step.after); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, step.sql); err != nil {
			return err
		}
	}
	return nil
}

// leaseWatch collects what leases took.
type leaseWatch struct {
	mu     sync.Mutex
	took   []float64 // ms
	delays []float64 // ms from the time that a task was due until it was leased
}

func (w *leaseWatch) leased(took time.Duration, leases []asyncflow.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, float64(took)/1e6)
	for _, l := range leases {
		w.delays = append(w.delays, float64(l.LeasedAt.Sub(l.OrderTime))/1e6)
	}
}

// sample adds to the timeline what came together in each period.
func (w *leaseWatch) sample(ctx context.Context, period time.Duration, t *timeline) error {
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
		t.add(time.Since(start).Seconds(), figures{
			{"rate", "Leased", "tasks/s", float64(len(delays)) / period.Seconds()},
			{"lease_p50", "Lease p50", "ms", percentile(took, 50)},
			{"lease_p99", "Lease p99", "ms", percentile(took, 99)},
			{"delay_p50", "Due to leased p50", "ms", percentile(delays, 50)},
			{"delay_p99", "Due to leased p99", "ms", percentile(delays, 99)},
		})
	}
}
