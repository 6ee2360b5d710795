package governance

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow/store"
)

// dependencies finds tasks that still wait for others that have ended, of all tenants with waiting
// tasks: nobody has told of these ends. The job follow-up does the rest, if no node does it at once.
func (g *Governor) dependencies(ctx context.Context) (int, error) {
	due, err := g.duePlans(ctx, &g.follows, &g.depended, g.store.OpenEdges, 0)
	sum, errs := 0, []error{err}
	for _, tenant := range due {
		n, err := g.store.SweepOpenEdges(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

func (g *Governor) dryRunDependencies(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunOpenEdges(ctx, tenant)
	})
}
