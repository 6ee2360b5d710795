package governance

import (
	"context"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

// fold adds up the tallies of times that are over, of the tenants whose tallies have changed
// since a fold found nothing to do.
func (g *Governor) fold(ctx context.Context) (int, error) {
	unfolded, err := g.unfolded(ctx)
	if err != nil {
		return 0, err
	}
	return eachTenant(slices.Sorted(maps.Keys(unfolded)), func(tenant string) (int, error) {
		n, err := g.store.Fold(ctx, tenant)
		if err == nil && n == 0 {
			g.folded.Store(tenant, unfolded[tenant])
		}
		return n, err
	})
}

// unfolded returns the tenants whose tallies are not as the last fold left them.
func (g *Governor) unfolded(ctx context.Context) (map[string]store.Unfolded, error) {
	unfolded, err := g.store.Unfolded(ctx)
	maps.DeleteFunc(unfolded, func(tenant string, u store.Unfolded) bool {
		known, _ := g.folded.Load(tenant)
		return known == u
	})
	return unfolded, err
}

func (g *Governor) dryRunFold(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunFold(ctx, tenant)
	})
}
