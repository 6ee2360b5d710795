package rig

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/report"
)

// Submitters is the number of connections that submit.
const Submitters = 4

// Passage is the way of some tasks through asyncflow, from the first submit to the last final
// state.
type Passage struct {
	Cost
	TaskType  *TaskType
	Tasks     int
	start     time.Time
	submitted time.Duration // until the last submit was answered
}

// Pass submits tasks of a type, and waits until all are done.
func (r *Rig) Pass(ctx context.Context, t *TaskType, tasks int) (Passage, error) {
	return r.PassBy(ctx, t, tasks, func(ctx context.Context) error {
		return r.SubmitAll(ctx, t, tasks)
	})
}

// PassBy lets submit submit that many tasks of a type, and waits until all are done.
func (r *Rig) PassBy(
	ctx context.Context, t *TaskType, tasks int, submit func(context.Context) error,
) (p Passage, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience(tasks*t.Stages))
	defer cancel()
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return p, err
	}
	p.TaskType, p.Tasks, p.start = t, tasks, time.Now()
	if err := submit(ctx); err != nil {
		return p, fmt.Errorf("submit: %w", err)
	}
	p.submitted = time.Since(p.start)
	if err := r.awaitFinal(ctx, t, meter.Before.Deliveries+tasks*t.Stages); err != nil {
		return p, fmt.Errorf("waiting for the last task: %w", err)
	}
	if p.Cost, err = meter.Stop(ctx); err != nil {
		return p, err
	}
	return p, r.checkFinals(ctx, t)
}

// Figures are the rate of a passage and what each task costs.
func (p Passage) Figures() (all report.Figures) {
	again := p.Deliveries - p.Tasks*p.TaskType.Stages
	all.Add("end_to_end", "End to end", "tasks/s", p.Rate(p.Tasks))
	all.Add("submitted", "Submitted", "tasks/s", float64(p.Tasks)/p.submitted.Seconds())
	all.Add("delivered_again", "Delivered more than once", "tasks", float64(again))
	return append(all, p.Cost.Figures(p.Tasks)...)
}

// Measure measures a passage: the rate of its deliveries, what each task costs, and the time from
// submit to settled.
func (r *Rig) Measure(ctx context.Context, t *TaskType, tasks int) (report.Figures, error) {
	p, err := r.Pass(ctx, t, tasks)
	if err != nil {
		return nil, err
	}
	return r.Measured(ctx, p)
}

// Measured returns what Measure does, of a passage that is over.
func (r *Rig) Measured(ctx context.Context, p Passage) (all report.Figures, err error) {
	p50, p99, err := r.DB.settled(ctx, p.TaskType.Name, p.start)
	unit := "tasks/s"
	if p.TaskType.Stages > 1 {
		unit = "deliveries/s"
	}
	all.Add("rate", "Rate", unit, p.Rate(p.Tasks*p.TaskType.Stages))
	all.Add("settled_p50", "Submit to settled, p50", "ms", p50)
	all.Add("settled_p99", "Submit to settled, p99", "ms", p99)
	return append(all, p.Figures()[1:]...), err
}

// WarmUpTasks open connections, fill caches and prepare statements.
const WarmUpTasks = 2000

// WarmUp lets some tasks of a type pass that aren't measured.
func (r *Rig) WarmUp(ctx context.Context, t *TaskType) error {
	_, err := r.Pass(ctx, t, WarmUpTasks)
	return err
}

// SubmitAll submits the next tasks in batches over a few connections, to all nodes alike.
func (r *Rig) SubmitAll(ctx context.Context, t *TaskType, tasks int) error {
	return r.SubmitAllWith(ctx, t, tasks, func(int) string { return "" })
}

// SubmitAllWith is SubmitAll for tasks with further members: more returns the members of a task,
// each with a comma behind it.
func (r *Rig) SubmitAllWith(
	ctx context.Context, t *TaskType, tasks int, more func(n int) string,
) error {
	first := r.Take(t, tasks)
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range Submitters {
		api := r.Nodes[i%len(r.Nodes)].API
		g.Go(func() error {
			for {
				n := int(taken.Add(int64(t.Batch))) - t.Batch
				if n >= tasks {
					return nil
				}
				err := api.submitMany(ctx, t.Name, first+n, min(t.Batch, tasks-n), t.Size, more)
				if err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// awaitFinal waits until the worker got a number of deliveries, and then until no task is live. It
// leaves the database alone until then.
func (r *Rig) awaitFinal(ctx context.Context, t *TaskType, deliveries int) error {
	if err := r.awaitDeliveries(ctx, deliveries); err != nil {
		return err
	}
	return Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		live, err := r.DB.Live(ctx, t.Name)
		return !live, err
	})
}

// awaitDeliveries waits until the worker got a number of deliveries.
func (r *Rig) awaitDeliveries(ctx context.Context, deliveries int) error {
	got := 0
	err := Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		c, err := r.WorkerCounts(ctx)
		got = c.Deliveries
		return got >= deliveries, err
	})
	if err != nil {
		err = errors.Join(err, fmt.Errorf("%d of %d deliveries have come", got, deliveries))
	}
	return err
}

// checkFinals compares the journal with what was submitted.
func (r *Rig) checkFinals(ctx context.Context, t *TaskType) error {
	succeeded, otherwise, err := r.DB.finals(ctx, t.Name, t.History)
	if err == nil && (succeeded != t.Submitted || otherwise != 0) {
		err = fmt.Errorf("broken: of %d tasks submitted, %d succeeded and %d ended otherwise",
			t.Submitted, succeeded, otherwise)
	}
	return err
}
