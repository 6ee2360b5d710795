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

// passage is the way of some tasks through asyncflow, from the first submit to the last
// final state.
type passage struct {
	pipe               *pipe
	tasks              int
	start              time.Time
	submitted, elapsed time.Duration
	before, after      reading
}

// pass has tasks of a pipe done.
func (b *bench) pass(ctx context.Context, p *pipe, tasks int) (w passage, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(tasks*p.stages)*slowest+slack)
	defer cancel()
	if err := b.db.checkpoint(ctx); err != nil {
		return w, err
	}
	w.pipe, w.tasks = p, tasks
	if w.before, err = b.reading(ctx); err != nil {
		return w, err
	}
	w.start = time.Now()
	if err := b.submitAll(ctx, p, tasks); err != nil {
		return w, fmt.Errorf("submit: %w", err)
	}
	w.submitted = time.Since(w.start)
	if err := b.awaitFinal(ctx, p, w.before.counts.Deliveries+tasks*p.stages); err != nil {
		return w, fmt.Errorf("waiting for the last task: %w", err)
	}
	w.elapsed = time.Since(w.start)
	if w.after, err = b.reading(ctx); err != nil {
		return w, err
	}
	return w, b.checkFinals(ctx, p)
}

// endToEnd measures a passage.
func (b *bench) endToEnd(ctx context.Context, p *pipe, tasks int) (figures, error) {
	w, err := b.pass(ctx, p, tasks)
	if err != nil {
		return nil, err
	}
	return w.figures(), nil
}

// submitAll submits the next tasks in batches over a few connections, to all nodes alike.
func (b *bench) submitAll(ctx context.Context, p *pipe, tasks int) error {
	first := b.take(p, tasks)
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range submitters {
		api := b.nodes[i%len(b.nodes)].api
		g.Go(func() error {
			for {
				n := int(taken.Add(int64(p.batch))) - p.batch
				if n >= tasks {
					return nil
				}
				if err := api.submitMany(ctx, p.name, first+n, min(p.batch, tasks-n), p.size, ""); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// awaitFinal waits until the worker has had so many deliveries, and then until no task is
// live. The database is left alone until then.
func (b *bench) awaitFinal(ctx context.Context, p *pipe, deliveries int) error {
	var c counts
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		err := b.sink.get(ctx, countPath, &c)
		return c.Deliveries >= deliveries, err
	})
	if err != nil {
		return errors.Join(err, fmt.Errorf("%d of %d deliveries have come", c.Deliveries, deliveries))
	}
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
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

func (w passage) figures() figures {
	again := w.after.counts.Deliveries - w.before.counts.Deliveries - w.tasks*w.pipe.stages
	all := figures{
		{"end_to_end", "End to end", "tasks/s", float64(w.tasks) / w.elapsed.Seconds()},
		{"submitted", "Submitted", "tasks/s", float64(w.tasks) / w.submitted.Seconds()},
		{"delivered_again", "Delivered more than once", "tasks", float64(again)},
	}
	all = append(all, writtenFigures(w.tasks, w.before.written, w.after.written)...)
	return append(all, cpuFigures(w.tasks, w.elapsed, w.after.usage.since(w.before.usage))...)
}

func writtenFigures(tasks int, before, after written) figures {
	n := float64(tasks)
	return figures{
		{"wal", "WAL", "bytes/task", float64(after.wal-before.wal) / n},
		{"transactions", "Writing transactions", "per 1000 tasks", 1000 * float64(after.transactions-before.transactions) / n},
	}
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
