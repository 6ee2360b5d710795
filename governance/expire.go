package governance

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow/store"
)

// expireJob ends the tasks that are live at the end of their lifetime. A tenant rests until the
// first lifetime ends.
type expireJob struct{ visits }

func (j *expireJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.FirstLifetimes, j.expireTenant)
}

// expireTenant takes steps for the types of a tenant in turn, so that none waits for another's
// tasks.
func (j *expireJob) expireTenant(ctx context.Context, tenant string) (sum int, err error) {
	types, err := j.store.TypesWithExpired(ctx, tenant)
	errs := []error{err}
	for len(types) > 0 && ctx.Err() == nil {
		var more []*store.Type
		for _, t := range types {
			n, err := j.store.ExpireTasks(ctx, t)
			sum += n
			errs = append(errs, err)
			if n > 0 && err == nil {
				more = append(more, t)
			}
		}
		types = more
	}
	return sum, errors.Join(errs...)
}

func (j *expireJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunExpireTasks(ctx, tenant)
	})
}
