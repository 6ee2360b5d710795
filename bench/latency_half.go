package main

import (
	"context"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// half asks: how long does a task take from submit to arrival under load? Batches of 100 are sent
// at half of the rate that the scenario post reached last.
var half = scenario{
	"half", "Submit to arrival at half of the maximum rate", 1,
	beginHalf,
}

func beginHalf(ctx context.Context, r *rounds) (measure, error) {
	t, err := registerWarm(ctx, r.Rig, "half", rig.Shape{})
	return func(ctx context.Context) (report.Figures, error) {
		if r.mostRate == 0 {
			all, err := r.Measure(ctx, t, r.tasks)
			if err != nil {
				return nil, err
			}
			r.mostRate = all[0].Value
		}
		return r.halfRate(ctx, t)
	}, err
}

func (r *rounds) halfRate(ctx context.Context, t *rig.TaskType) (report.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, r.latencyTime+rig.Slack)
	defer cancel()
	rate := r.mostRate / 2
	lasting := r.latencyTime.Seconds() / 2
	calls := int(rate * lasting / rig.BatchSize)
	first := r.Take(t, calls*rig.BatchSize)
	call := func(ctx context.Context, i int) error {
		return r.API.SubmitBatch(ctx, t.Name, first+i*rig.BatchSize, "")
	}
	sent, err := rig.Trickle(ctx, calls, rate/rig.BatchSize, call)
	if err != nil {
		return nil, err
	}
	each := make([]int64, 0, calls*rig.BatchSize)
	for _, at := range sent {
		for range rig.BatchSize {
			each = append(each, at)
		}
	}
	all, err := r.Arrivals(ctx, first, each)
	all.Add("offered", "Offered", "tasks/s", rate)
	return all, err
}
