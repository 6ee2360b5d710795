package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// pending asks: does the memory of a node grow with the number of pending tasks?
var pending = scenario{
	"pending", "A node with 1 M pending tasks", 1,
	beginPending,
}

// beginPending submits the tasks, once, to a type that is paused. In each round a new node works
// on them for a while; then as many are submitted again.
func beginPending(ctx context.Context, r *rounds) (measure, error) {
	side, err := r.Side(ctx, "pending", r.Binary)
	if err != nil {
		return nil, err
	}
	pending, working := 1_000_000, 5*time.Second
	if r.short {
		pending, working = 20_000, time.Second
	}
	var t *rig.TaskType
	err = side.WithNode(ctx, func(ctx context.Context) error {
		if err := side.MakeTenant(ctx); err != nil {
			return err
		}
		if t, err = side.Register(ctx, "pending", rig.Shape{}); err != nil {
			return err
		}
		if err := side.Pause(ctx, t); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "bench: submitting %s tasks that stay pending\n",
			report.Number(float64(pending)))
		return side.SubmitAll(ctx, t, pending)
	})
	return func(ctx context.Context) (all report.Figures, err error) {
		err = side.WithNode(ctx, func(ctx context.Context) error {
			all, err = pendingMemory(ctx, side, t, pending, working)
			return err
		})
		return all, err
	}, err
}

// pendingMemory lets the node work for a while, and returns the memory that it came to.
func pendingMemory(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, pending int, working time.Duration,
) (all report.Figures, err error) {
	before, err := r.WorkerCounts(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Resume(ctx, t); err != nil {
		return nil, err
	}
	if !sleep.For(ctx, working) {
		return nil, ctx.Err()
	}
	if err := r.Pause(ctx, t); err != nil {
		return nil, err
	}
	after, err := r.WorkerCounts(ctx)
	if err != nil {
		return nil, err
	}
	done := after.Deliveries - before.Deliveries
	all.Add("memory", "Memory of the node, at most", "MB", machine.PeakMemory(r.Nodes[0].PID()))
	all.Add("pending", "Pending tasks", "tasks", float64(pending))
	all.Add("meanwhile", "Meanwhile", "tasks/s", float64(done)/working.Seconds())
	return all, r.SubmitAll(ctx, t, done/rig.BatchSize*rig.BatchSize)
}
