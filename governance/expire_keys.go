package governance

import (
	"context"

	"github.com/asyncflow/asyncflow/store"
)

// expireKeys deletes idempotency keys whose windows are over.
func (g *Governor) expireKeys(ctx context.Context) (int, error) {
	tenants, err := g.store.TenantsToExpire(ctx)
	if err != nil {
		return 0, err
	}
	return eachTenant(tenants, func(tenant string) (int, error) {
		return g.store.ExpireKeys(ctx, tenant)
	})
}

func (g *Governor) dryRunExpireKeys(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunKeys(ctx, tenant)
	})
}
