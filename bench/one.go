package main

import (
	"context"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// one asks: how fast are tasks of one type that are submitted one by one, and delivered?
var one = scenario{
	"one", "Single submits over 64 connections, one POST each", singleTurns,
	beginOne,
}

const (
	// singleTurns are the turns in a round of what is submitted and delivered one by one.
	singleTurns = 2
	// singlePart divides the number of tasks of a round, for each of these turns.
	singlePart = 3
)

func beginOne(ctx context.Context, r *rounds) (measure, error) {
	t, err := r.Register(ctx, "one", rig.Shape{})
	if err != nil {
		return nil, err
	}
	if _, _, err = passSingly(ctx, r.Rig, t, rig.WarmUpTasks); err != nil {
		return nil, err
	}
	r.countDead(r.Rig, t)
	return func(ctx context.Context) (report.Figures, error) {
		return measureSingly(ctx, r.Rig, t, r.tasks/singlePart)
	}, nil
}

// measureSingly measures a passage of tasks that are submitted one by one.
func measureSingly(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int,
) (report.Figures, error) {
	p, took, err := passSingly(ctx, r, t, tasks)
	if err != nil {
		return nil, err
	}
	all, err := r.Measured(ctx, p)
	return append(all, took.figures()...), err
}

func passSingly(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int,
) (p rig.Passage, took callTimes, err error) {
	p, err = r.PassBy(ctx, t, tasks, func(ctx context.Context) (err error) {
		took, err = submitOneType(ctx, r, t, tasks)
		return err
	})
	return p, took, err
}
