package main

import (
	"context"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// latency asks: how long does a task take from submit to arrival, far below the limit?
var latency = scenario{
	"latency", "Submit to arrival at 100 tasks/s", 1,
	beginLatency,
}

func beginLatency(ctx context.Context, r *rounds) (measure, error) {
	t, err := registerWarm(ctx, r.Rig, "latency", rig.Shape{})
	return func(ctx context.Context) (report.Figures, error) {
		meter, err := r.StartMeter(ctx)
		if err != nil {
			return nil, err
		}
		before := t.Submitted
		all, err := r.Latency(ctx, t, r.latencyTime)
		if err != nil {
			return nil, err
		}
		cost, err := meter.Stop(ctx)
		return append(all, cost.Figures(t.Submitted-before)...), err
	}, err
}
