package governance

import (
	"context"

	"github.com/asyncflow/asyncflow/store"
)

// vacuum vacuums the small tables of the types of which this node has moved many rows.
func (g *Governor) vacuum(ctx context.Context) (int, error) { return g.store.Vacuum(ctx) }

// ByHand makes a governor for a process that only runs jobs by hand. Such a process has moved no
// rows itself, so its vacuum takes the tables of every type.
func (g *Governor) ByHand() *Governor {
	for i := range g.jobs {
		if g.jobs[i].Name == "vacuum" {
			g.jobs[i].Run = g.vacuumAll
		}
	}
	return g
}

func (g *Governor) vacuumAll(ctx context.Context) (int, error) {
	return g.everyType(ctx, func(o store.Overview) (int, error) {
		return 1, g.store.VacuumType(ctx, o.Type)
	})
}

func (g *Governor) dryRunVacuum(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTypes(ctx, func(o store.Overview) (int, error) {
		return g.store.DryRunVacuum(ctx, o.Type)
	})
}
