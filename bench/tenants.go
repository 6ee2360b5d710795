package main

import (
	"context"
	"math/rand/v2"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// tenants and skew ask: how fast are tasks that are submitted one by one, when each is of another
// of many types? Each is of any type; or 80 % of them are of 20 % of the types, which are spread
// over all tenants.
var (
	tenants = scenario{
		"tenants", "1,000 task types in 100 tenants, single submits, one POST each", singleTurns,
		beginTenants(anyOf),
	}
	skew = scenario{
		"skew", "80 % of the tasks of 20 % of 1,000 types in 100 tenants", singleTurns,
		beginTenants(skewed),
	}
)

const (
	manyTypes   = 1000
	manyTenants = 100
)

// anyOf chooses any of several types.
func anyOf(types int) int { return rand.IntN(types) }

// skewed chooses one of the first fifth of the types four times of five.
func skewed(types int) int {
	few := types / 5
	if rand.Float64() < 0.8 {
		return rand.IntN(few)
	}
	return few + rand.IntN(types-few)
}

// manyRig keeps task types in a database of its own. Its node runs only while it is measured.
type manyRig struct {
	*rig.Rig
	types *rig.ManyTypes
	count int // of types
}

// newManyRig makes types, each with an endpoint, in a number of tenants.
func newManyRig(
	ctx context.Context, of *rig.Rig, name string, types, tenants int,
) (*manyRig, error) {
	side, err := of.Side(ctx, name, of.Binary)
	if err != nil {
		return nil, err
	}
	m := &manyRig{Rig: side, count: types}
	err = m.WithNode(ctx, func(ctx context.Context) (err error) {
		if m.types, err = m.NewManyTypes(ctx, tenants); err != nil {
			return err
		}
		return m.types.Add(ctx, types, true)
	})
	return m, err
}

// many returns the numbers of types and tenants.
func (c config) many() (types, tenants int) {
	if c.short {
		return 40, 4
	}
	return manyTypes, manyTenants
}

// manyRig returns the rig of a name that scenarios with many types share. It makes it once.
func (r *rounds) manyRig(ctx context.Context, name string) (*manyRig, error) {
	if m := r.shared[name]; m != nil {
		return m, nil
	}
	types, tenants := r.config.many()
	m, err := newManyRig(ctx, r.Rig, name, types, tenants)
	if r.shared == nil {
		r.shared = map[string]*manyRig{}
	}
	r.shared[name] = m
	return m, err
}

func beginTenants(choose func(types int) int) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		m, err := r.manyRig(ctx, "tenants")
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (all report.Figures, err error) {
			err = m.WithNode(ctx, func(ctx context.Context) (err error) {
				all, err = m.measureSingly(ctx, r.tasks/singlePart, choose)
				return err
			})
			return all, err
		}, nil
	}
}

// measureSingly measures tasks that are submitted one by one. As in use, each type got tasks since
// the start of the node.
func (m *manyRig) measureSingly(
	ctx context.Context, tasks int, choose func(types int) int,
) (all report.Figures, err error) {
	m.types.Locate()
	if err := m.warmUp(ctx); err != nil {
		return nil, err
	}
	cost, took, err := m.pass(ctx, tasks, choose)
	if err != nil {
		return nil, err
	}
	all.Add("rate", "Rate", "tasks/s", cost.Rate(tasks))
	all = append(all, took.figures()...)
	return append(all, cost.Figures(tasks)...), nil
}

// warmUp lets some tasks of each type pass.
func (m *manyRig) warmUp(ctx context.Context) error {
	last := -1
	_, _, err := m.pass(ctx, max(m.count, rig.WarmUpTasks), func(types int) int {
		last++
		return last % types
	})
	return err
}

// pass submits tasks one by one, and waits until all are done.
func (m *manyRig) pass(
	ctx context.Context, tasks int, choose func(types int) int,
) (cost rig.Cost, took callTimes, err error) {
	cost, err = m.types.Pass(ctx, tasks, func(ctx context.Context, first int) (err error) {
		took, err = submitEach(ctx, m.Rig, first, tasks, func() (*rig.Client, string) {
			return m.types.At(choose(m.count))
		})
		return err
	})
	return cost, took, err
}
