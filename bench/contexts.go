package main

import (
	"context"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// context10k and context100k ask: what do long contexts cost, in rate and in memory?
var (
	context10k  = scenario{"context10k", "Contexts of 10 KB", 1, contexts(10<<10, 50, 6)}
	context100k = scenario{"context100k", "Contexts of 100 KB", 1, contexts(100<<10, 10, 30)}
)

// contexts returns the begin of a scenario with contexts of size bytes, batch of them in a submit.
// part divides the number of tasks of a round. Each round gets a new node, so that its memory is
// its own.
func contexts(size, batch, part int) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		name := r.scenario.name
		side, err := r.Side(ctx, name, r.Binary)
		if err != nil {
			return nil, err
		}
		var t *rig.TaskType
		err = side.WithNode(ctx, func(ctx context.Context) (err error) {
			if err := side.MakeTenant(ctx); err != nil {
				return err
			}
			t, err = side.Register(ctx, name, rig.Shape{Size: size, Batch: batch})
			return err
		})
		if err != nil {
			return nil, err
		}
		r.countDead(side, t)
		tasks := r.tasks / part
		return func(ctx context.Context) (all report.Figures, err error) {
			err = side.WithNode(ctx, func(ctx context.Context) error {
				if _, err := side.Pass(ctx, t, tasks/10); err != nil { // a warm-up
					return err
				}
				all, err = side.Measure(ctx, t, tasks)
				all.Add("memory", "Memory of the node, at most", "MB",
					machine.PeakMemory(side.Nodes[0].PID()))
				return err
			})
			return all, err
		}, nil
	}
}
