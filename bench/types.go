package main

import (
	"context"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// types, oneType and types1500 ask: what do tasks cost, and how long do they take, when each is of
// another of many types, at a low rate and at a higher one? oneType is what the cost of types is
// compared with.
var (
	types = scenario{
		"types", "1,000 task types in 100 tenants, 200 tasks/s", 1,
		beginTypes(manyRigOfTypes, typesRate),
	}
	oneType = scenario{
		"one-type", "One task type, 200 tasks/s", 1,
		beginTypes(oneTypeRig, typesRate),
	}
	types1500 = scenario{
		"types1500", "1,000 task types in 100 tenants, 1,500 tasks/s", 1,
		beginTypes(manyRigOfTypes, 1500),
	}
)

// typesRate is the low rate, in tasks a second.
const typesRate = 200

// typesWarmUp is the least number of tasks that a new node does before it is measured.
const typesWarmUp = 1000

func manyRigOfTypes(ctx context.Context, r *rounds) (*manyRig, error) {
	return r.manyRig(ctx, "types")
}

func oneTypeRig(ctx context.Context, r *rounds) (*manyRig, error) {
	return newManyRig(ctx, r.Rig, "one_type", 1, 1)
}

func beginTypes(
	of func(context.Context, *rounds) (*manyRig, error), rate float64,
) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		m, err := of(ctx, r)
		if err != nil {
			return nil, err
		}
		warmUp := typesWarmUp
		if r.short {
			warmUp = m.count
		}
		return func(ctx context.Context) (all report.Figures, err error) {
			err = m.WithNode(ctx, func(ctx context.Context) (err error) {
				all, err = m.measureTrickle(ctx, rate, warmUp, int(rate*r.latencyTime.Seconds()))
				return err
			})
			return all, err
		}, nil
	}
}

// measureTrickle submits tasks at a rate, each of any type, and measures what they cost. As in use,
// each type got a task since the start of the node.
func (m *manyRig) measureTrickle(
	ctx context.Context, rate float64, warmUp, tasks int,
) (report.Figures, error) {
	m.types.Locate()
	each := func(i int) int { return i % m.count }
	if _, err := m.trickle(ctx, typesRate, warmUp, each); err != nil {
		return nil, err
	}
	meter, err := m.StartMeter(ctx)
	if err != nil {
		return nil, err
	}
	all, err := m.trickle(ctx, rate, tasks, func(int) int { return anyOf(m.count) })
	if err != nil {
		return nil, err
	}
	cost, err := meter.Stop(ctx)
	return append(all, cost.Figures(tasks)...), err
}

// trickle submits tasks at a rate and returns how long they took to arrive. which returns the type
// of each.
func (m *manyRig) trickle(
	ctx context.Context, rate float64, tasks int, which func(i int) int,
) (report.Figures, error) {
	first := m.types.Take(tasks)
	sent, err := rig.Trickle(ctx, tasks, rate, func(ctx context.Context, i int) error {
		client, name := m.types.At(which(i))
		return client.Submit(ctx, name, first+i)
	})
	if err != nil {
		return nil, err
	}
	return m.Arrivals(ctx, first, sent)
}
