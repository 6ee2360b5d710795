package governance

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow/store"
)

// children compares the counts of tasks that wait for children with the children themselves, for
// all tenants with such tasks, and corrects wrong counts. It returns how many fan-outs it
// corrected.
func (g *Governor) children(ctx context.Context) (int, error) {
	due, err := g.duePlans(ctx, &g.follows, &g.compared, g.store.OpenFanOuts, 0)
	sum, errs := 0, []error{err}
	for _, tenant := range due {
		n, err := g.store.SweepFanOuts(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

func (g *Governor) dryRunChildren(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunFanOuts(ctx, tenant)
	})
}
