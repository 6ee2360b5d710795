package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// beginPending submits the tasks, once, to a type that is paused. In each round a new node
// works on them for a while; then there are as many again.
func beginPending(ctx context.Context, r *rounds) (measure, error) {
	side, err := r.side(ctx, "pending", "")
	if err != nil {
		return nil, err
	}
	pending, working := 1_000_000, 5*time.Second
	if r.config.short {
		pending, working = 20_000, time.Second
	}
	var p *pipe
	err = side.withNode(ctx, func(ctx context.Context) error {
		if err := side.makeTenant(ctx); err != nil {
			return err
		}
		if p, err = side.registerShape(ctx, "pending", shape{}); err != nil {
			return err
		}
		if err := side.pause(ctx, p); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "bench: submitting %s tasks that stay pending\n", number(float64(pending)))
		return side.submitAll(ctx, p, pending)
	})
	return func(ctx context.Context) (all figures, err error) {
		err = side.withNode(ctx, func(ctx context.Context) error {
			all, err = side.pendingMemory(ctx, p, pending, working)
			return err
		})
		return all, err
	}, err
}

// pendingMemory has the node work for a while, and returns the memory that it came to.
func (b *bench) pendingMemory(ctx context.Context, p *pipe, pending int, working time.Duration) (figures, error) {
	var before, after counts
	if err := b.sink.get(ctx, countPath, &before); err != nil {
		return nil, err
	}
	if err := b.resume(ctx, p); err != nil {
		return nil, err
	}
	if err := sleep(ctx, working); err != nil {
		return nil, err
	}
	if err := b.pause(ctx, p); err != nil {
		return nil, err
	}
	if err := b.sink.get(ctx, countPath, &after); err != nil {
		return nil, err
	}
	all := figures{
		{"memory", "Memory of the node, at most", "MB", peakMemory(b.nodes[0].pid())},
		{"pending", "Pending tasks", "tasks", float64(pending)},
		{"meanwhile", "Meanwhile", "tasks/s", float64(after.Deliveries-before.Deliveries) / working.Seconds()},
	}
	done := (after.Deliveries - before.Deliveries) / batchSize * batchSize
	return all, b.submitAll(ctx, p, done)
}
