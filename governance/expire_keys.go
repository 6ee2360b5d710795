package governance

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

// expireKeys deletes idempotency keys whose windows are over.
func (g *Governor) expireKeys(ctx context.Context) (int, error) {
	keys, err := g.keys.read(ctx, g.store)
	if err != nil {
		return 0, err
	}
	restless := g.expired.restless(g.store.Catalog.Versions(), keys, g.store.Clock.Now())
	first, err := g.store.FirstKeys(ctx, slices.Collect(maps.Keys(restless)))
	if err != nil {
		return 0, err
	}
	sum, errs, now := 0, []error{}, g.store.Clock.Now()
	for tenant, state := range restless {
		if at, ok := first[tenant]; ok && !at.After(now) {
			n, err := untilDone(func() (int, error) { return g.store.ExpireKeys(ctx, tenant) })
			sum, errs = sum+n, append(errs, err)
			continue
		}
		g.expired.rest(tenant, state, first[tenant])
	}
	return sum, errors.Join(errs...)
}

func (g *Governor) dryRunExpireKeys(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunKeys(ctx, tenant)
	})
}
