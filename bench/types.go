package main

import (
	"context"
	"math/rand/v2"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// types asks: what do tasks cost, and how long do they take, when each is of another of many types?
var types = scenario{
	"types", "1,000 task types in 100 tenants, 200 tasks/s", 1,
	beginTypes,
}

// typesRate is the number of tasks a second, submitted one by one.
const typesRate = 200

// tenants is the number of tenants that many task types belong to.
const tenants = 100

// typesRig has the types in a database of its own. Its node runs only while it is measured.
type typesRig struct {
	*rig.Rig
	types *rig.ManyTypes
	count int
	next  rig.TaskType // only counts the tasks
}

func beginTypes(ctx context.Context, r *rounds) (measure, error) {
	side, err := r.Side(ctx, "types", r.Binary)
	if err != nil {
		return nil, err
	}
	m := &typesRig{Rig: side, count: 1000}
	tenants := tenants
	if r.short {
		m.count, tenants = 40, 4
	}
	err = m.WithNode(ctx, func(ctx context.Context) (err error) {
		if m.types, err = m.NewManyTypes(ctx, tenants); err != nil {
			return err
		}
		return m.types.Add(ctx, m.count, true)
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (all report.Figures, err error) {
		err = m.WithNode(ctx, func(ctx context.Context) error {
			m.types.Locate()
			// As in use, each type has a task after the node has started.
			if _, err := m.trickle(ctx, m.count, func(i int) int { return i }); err != nil {
				return err
			}
			all, err = m.measure(ctx, int(typesRate*r.latencyTime.Seconds()))
			return err
		})
		return all, err
	}, nil
}

// trickle submits tasks and returns how long they took to arrive. which returns the type of each.
func (m *typesRig) trickle(
	ctx context.Context, tasks int, which func(i int) int,
) (report.Figures, error) {
	first := m.Take(&m.next, tasks)
	sent, err := rig.Trickle(ctx, tasks, typesRate, func(ctx context.Context, i int) error {
		client, name := m.types.At(which(i))
		return client.Submit(ctx, name, first+i)
	})
	if err != nil {
		return nil, err
	}
	return m.Arrivals(ctx, first, sent)
}

// measure submits tasks, each of any type, and adds what they cost.
func (m *typesRig) measure(ctx context.Context, tasks int) (report.Figures, error) {
	meter, err := m.StartMeter(ctx)
	if err != nil {
		return nil, err
	}
	all, err := m.trickle(ctx, tasks, func(int) int { return rand.IntN(m.count) })
	if err != nil {
		return nil, err
	}
	cost, err := meter.Stop(ctx)
	return append(all, cost.Figures(tasks)...), err
}
