package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	submitters = 4 // connections that submit
	// slowest is the time for a task, at 500 a second, after which a measurement
	// is given up; slack is there on top.
	slowest = 2 * time.Millisecond
	slack   = 30 * time.Second
)

// endToEnd measures the way of tasks of a type from the first submit to the last final
// state.
func (b *bench) endToEnd(ctx context.Context, p *pipe, tasks int) (_ figures, err error) {
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
	if err := b.submitAll(ctx, p, tasks); err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	submitted := time.Since(start)
	if err := b.awaitFinal(ctx, p, before.counts.Distinct+tasks); err != nil {
		return nil, fmt.Errorf("waiting for the last task: %w", err)
	}
	elapsed := time.Since(start)
	after, err := b.reading(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.checkFinals(ctx, p); err != nil {
		return nil, err
	}
	return endToEndFigures(tasks, submitted, elapsed, before, after), nil
}

// submitAll submits the next tasks in batches over a few connections.
func (b *bench) submitAll(ctx context.Context, p *pipe, tasks int) error {
	first := b.take(p, tasks)
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range submitters {
		g.Go(func() error {
			for {
				n := int(taken.Add(batchSize)) - batchSize
				if n >= tasks {
					return nil
				}
				if err := b.api.submitBatch(ctx, p.name, first+n, ""); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// awaitFinal waits until the worker has seen so many tasks, and then until none
// is live. The database is left alone until then.
func (b *bench) awaitFinal(ctx context.Context, p *pipe, distinct int) error {
	var c counts
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		err := b.sink.get(ctx, countPath, &c)
		return c.Distinct >= distinct, err
	})
	if err != nil {
		return errors.Join(err, fmt.Errorf("%d of %d tasks have arrived", c.Distinct, distinct))
	}
	return poll(ctx, 5*time.Millisecond, func() (bool, error) {
		live, err := b.db.live(ctx, p.name)
		return !live, err
	})
}

// checkFinals holds the journal against what was submitted.
func (b *bench) checkFinals(ctx context.Context, p *pipe) error {
	well, otherwise, err := b.db.succeeded(ctx, p.name, p.history)
	if err == nil && (well != p.submitted || otherwise != 0) {
		err = fmt.Errorf("broken: of %d tasks submitted, %d succeeded and %d ended otherwise", p.submitted, well, otherwise)
	}
	return err
}

// reading is all counters at one time.
type reading struct {
	usage   usage
	written written
	counts  counts
}

func (b *bench) reading(ctx context.Context) (r reading, err error) {
	if r.written, err = b.db.written(ctx); err != nil {
		return r, err
	}
	if err = b.sink.get(ctx, countPath, &r.counts); err != nil {
		return r, err
	}
	r.usage, err = b.usage()
	return r, err
}

func endToEndFigures(tasks int, submitted, elapsed time.Duration, before, after reading) figures {
	n := float64(tasks)
	again := after.counts.Deliveries - before.counts.Deliveries - tasks
	return append(figures{
		{"end_to_end", "End to end", "tasks/s", n / elapsed.Seconds()},
		{"submitted", "Submitted", "tasks/s", n / submitted.Seconds()},
		{"delivered_again", "Delivered more than once", "tasks", float64(again)},
		{"wal", "WAL", "bytes/task", float64(after.written.wal-before.written.wal) / n},
		{"transactions", "Writing transactions", "per 1000 tasks", 1000 * float64(after.written.transactions-before.written.transactions) / n},
	}, cpuFigures(tasks, elapsed, after.usage.since(before.usage))...)
}

// cpuFigures returns none where CPU times can't be read.
func cpuFigures(tasks int, elapsed time.Duration, u usage) figures {
	if u.sum() == 0 {
		return nil
	}
	return figures{
		{"cpu_node", "CPU of the node", "µs/task", micros(u.node, tasks)},
		{"cpu_postgres", "CPU of Postgres", "µs/task", micros(u.postgres, tasks)},
		{"cpu_worker", "CPU of the worker", "µs/task", micros(u.worker, tasks)},
		{"cpu_submitter", "CPU of the submitter", "µs/task", micros(u.submitter, tasks)},
		{"cpu_all", "CPU of all four", "µs/task", micros(u.sum(), tasks)},
		{"cores_busy", "Cores kept busy by them", "cores", u.sum().Seconds() / elapsed.Seconds()},
		{"cpu_bound", "All cores ÷ CPU of all four", "tasks/s", float64(runtime.NumCPU()*tasks) / u.sum().Seconds()},
	}
}
