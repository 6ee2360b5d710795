package main

import (
	"context"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// single asks: how many tasks a second can clients submit one by one? The type is paused: nothing
// else goes on.
var single = scenario{
	"single", "Single submits alone, 64 connections", 1,
	beginSingle,
}

const singleWarmUp = 2000 // submits

func beginSingle(ctx context.Context, r *rounds) (measure, error) {
	t, err := r.Register(ctx, "single", rig.Shape{})
	if err != nil {
		return nil, err
	}
	if err = r.Pause(ctx, t); err != nil {
		return nil, err
	}
	if _, err = submitOneType(ctx, r.Rig, t, singleWarmUp); err != nil {
		return nil, err
	}
	r.countDead(r.Rig, t)
	return func(ctx context.Context) (all report.Figures, err error) {
		ctx, cancel := context.WithTimeout(ctx, rig.Patience(r.tasks))
		defer cancel()
		meter, err := r.StartMeter(ctx)
		if err != nil {
			return nil, err
		}
		took, err := submitOneType(ctx, r.Rig, t, r.tasks)
		if err != nil {
			return nil, err
		}
		cost, err := meter.Stop(ctx)
		all.Add("rate", "Rate", "tasks/s", cost.Rate(r.tasks))
		all = append(all, took.figures()...)
		return append(all, cost.Figures(r.tasks)...), err
	}, nil
}
