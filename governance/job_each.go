package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// eachTenant repeats step for each tenant until the tenant is done, and adds up the rows. One
// tenant's failure doesn't stop the others.
func eachTenant(tenants []string, step func(tenant string) (int, error)) (int, error) {
	var sum int
	var errs []error
	for _, tenant := range tenants {
		n, err := untilDone(func() (int, error) { return step(tenant) })
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// eachType calls do for each type of each tenant that attention picks, and adds up the rows. A
// type that stays busy is visited again after every. One type's failure doesn't stop the others.
func (g *Governor) eachType(
	ctx context.Context, every time.Duration, do func(store.Overview) (int, error),
) (int, error) {
	var sum int
	var errs []error
	for tenant := range g.store.Catalog.Tenants() {
		overviews, err := g.overviews(ctx, tenant, every)
		errs = append(errs, err)
		for _, o := range overviews {
			n, err := do(o)
			sum += n
			errs = append(errs, err)
		}
	}
	return sum, errors.Join(errs...)
}

// untilDone repeats a step while it moves a full batch of rows, and adds up the rows.
func untilDone(step func() (int, error)) (int, error) {
	var sum int
	for {
		n, err := step()
		sum += n
		if err != nil || n < store.JobBatch {
			return sum, err
		}
	}
}
