package governance

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

// fold adds up the tallies of times that are over, of the tenants that have new tallies or some
// that have become old enough.
func (g *Governor) fold(ctx context.Context) (int, error) {
	restless, err := g.unfolded(ctx)
	if err != nil {
		return 0, err
	}
	names := slices.Collect(maps.Keys(restless))
	last, err := g.store.LastTallies(ctx, names)
	if err != nil {
		return 0, err
	}
	sum, errs := 0, []error{}
	for tenant, state := range restless {
		if last[tenant].IsZero() {
			g.folded.rest(tenant, state, last[tenant])
			continue
		}
		now := g.store.Clock.Now()
		n, err := untilDone(func() (int, error) { return g.store.Fold(ctx, tenant) })
		sum, errs = sum+n, append(errs, err)
		if err == nil && n == 0 {
			g.folded.rest(tenant, state, store.NextFold(last[tenant], now))
		}
	}
	return sum, errors.Join(errs...)
}

// unfolded returns the tenants whose tallies may have to be added up.
func (g *Governor) unfolded(ctx context.Context) (map[string]state, error) {
	tallies, err := g.tallies.read(ctx, g.store)
	return g.folded.restless(g.store.Catalog.Versions(), tallies, g.store.Clock.Now()), err
}

func (g *Governor) dryRunFold(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunFold(ctx, tenant)
	})
}
