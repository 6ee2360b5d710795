package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// children and plain ask: how fast are the children of one task done, beside as many plain tasks?
// join asks how long after its last child a task goes on. release asks how long it takes until the
// tasks go on that wait for one.
var (
	children = scenario{"children", "One task with 10,000 children", treeTurns, beginChildren}
	plain    = scenario{"plain", "10,000 plain tasks, submits of 100", treeTurns, beginPlain}
	join     = scenario{"join", "100 tasks/s with two children each", 1, beginJoin}
	release  = scenario{"release", "10,000 tasks that wait for one", 1, beginRelease}
)

// treeTurns are the turns in a round of children and plain: each takes a second.
const treeTurns = 3

// treeSize is the number of children or dependents of one task.
const treeSize = 10_000

func (r *rounds) treeSize() int {
	if r.short {
		return 3000
	}
	return treeSize
}

func beginChildren(ctx context.Context, r *rounds) (measure, error) {
	n := r.treeSize()
	t, err := r.Register(ctx, "children", rig.Shape{FanOut: fmt.Sprintf(`{"shards":%d}`, n)})
	if err != nil {
		return nil, err
	}
	_, err = r.PassTree(ctx, t, n)
	return func(ctx context.Context) (all report.Figures, err error) {
		cost, err := r.PassTree(ctx, t, n)
		all.Add("rate", "Rate", "tasks/s", cost.Rate(n))
		return append(all, cost.Figures(n)...), err
	}, err
}

func beginPlain(ctx context.Context, r *rounds) (measure, error) {
	t, err := registerWarm(ctx, r.Rig, "plain", rig.Shape{})
	return func(ctx context.Context) (report.Figures, error) {
		return r.Measure(ctx, t, r.treeSize())
	}, err
}

// joinRate is the number of tasks with children a second.
const joinRate = 100

func beginJoin(ctx context.Context, r *rounds) (measure, error) {
	t, err := r.Register(ctx, "join", rig.Shape{Stages: 2, FanOut: `{"shards":2}`,
		Path: worker.ChildPath, Next: worker.JoinPath})
	if err != nil {
		return nil, err
	}
	pass := func(ctx context.Context, lasting time.Duration) ([]float64, error) {
		parents := int(lasting.Seconds() * joinRate)
		first := r.Take(t, parents)
		t.Submitted += 2 * parents // with their children
		_, err := rig.Trickle(ctx, parents, joinRate, func(ctx context.Context, i int) error {
			return r.API.Submit(ctx, t.Name, first+i)
		})
		if err != nil {
			return nil, err
		}
		return r.JoinTimes(ctx, t, first, parents)
	}
	if _, err := pass(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (all report.Figures, err error) {
		times, err := pass(ctx, r.latencyTime)
		if err != nil {
			return nil, err
		}
		all.Add("latency_p50", "Last child settled to next stage, p50", "ms",
			report.Percentile(times, 50))
		all.Add("latency_p99", "Last child settled to next stage, p99", "ms",
			report.Percentile(times, 99))
		return all, nil
	}, nil
}

func beginRelease(ctx context.Context, r *rounds) (measure, error) {
	gate, err := r.Register(ctx, "gate", rig.Shape{})
	if err != nil {
		return nil, err
	}
	waiting, err := registerWarm(ctx, r.Rig, "waiting", rig.Shape{})
	return func(ctx context.Context) (all report.Figures, err error) {
		ctx, cancel := context.WithTimeout(ctx, rig.Patience(r.treeSize()))
		defer cancel()
		took, arrived, err := r.release(ctx, gate, waiting)
		all.Add("released", "End of the one to the last release", "ms", took.Seconds()*1e3)
		all.Add("arrived", "End of the one to the last arrival", "ms", arrived.Seconds()*1e3)
		all.Add("rate", "Released and delivered", "tasks/s",
			float64(r.treeSize())/arrived.Seconds())
		return all, err
	}, err
}

// release measures how long after the end of one task those are released, and delivered, that wait
// for it.
func (r *rounds) release(
	ctx context.Context, gate, waiting *rig.TaskType,
) (released, arrived time.Duration, err error) {
	if err := r.Pause(ctx, gate); err != nil {
		return 0, 0, err
	}
	id, err := r.SubmitOne(ctx, gate)
	if err != nil {
		return 0, 0, err
	}
	first, n := r.Take(waiting, r.treeSize()), r.treeSize()
	on := fmt.Sprintf(`"depends_on":[{"task":%q}],`, id)
	for i := 0; i < n; i += rig.BatchSize {
		if err := r.API.SubmitBatch(ctx, waiting.Name, first+i, on); err != nil {
			return 0, 0, err
		}
	}
	err = rig.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		n, err := r.DB.Undone(ctx)
		return n == 0, err
	})
	if err != nil {
		return 0, 0, err
	}
	before, err := r.WorkerCounts(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err = r.Resume(ctx, gate); err != nil {
		return 0, 0, err
	}
	var last time.Time
	err = rig.Poll(ctx, 5*time.Millisecond, func() (bool, error) {
		n, err := r.DB.Count(ctx, "wait", waiting.Name)
		last = time.Now()
		return n == 0, err
	})
	if err != nil {
		return 0, 0, err
	}
	if err := r.AwaitAll(ctx, waiting, before.Deliveries+n+1); err != nil {
		return 0, 0, err
	}
	end := time.Now()
	began, err := r.DB.LastEnd(ctx, gate.Name)
	return last.Sub(began), end.Sub(began), err
}
