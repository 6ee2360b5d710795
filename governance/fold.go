package governance

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

// foldJob adds up the tallies of times that are over, of the tenants with new tallies or some that
// became old enough.
type foldJob struct{ visits }

func (j *foldJob) run(ctx context.Context) (int, error) {
	restless, err := j.restless(ctx)
	if err != nil {
		return 0, err
	}
	names := slices.Collect(maps.Keys(restless))
	last, err := j.store.LastTallies(ctx, names)
	if err != nil {
		return 0, err
	}
	sum, errs := 0, []error{}
	for tenant, state := range restless {
		if last[tenant].IsZero() {
			j.rests.rest(tenant, state, last[tenant])
			continue
		}
		now := j.store.Clock.Now()
		n, err := untilDone(func() (int, error) { return j.store.Fold(ctx, tenant) })
		sum += n
		errs = append(errs, err)
		if err == nil && n == 0 {
			j.rests.rest(tenant, state, store.NextFold(last[tenant], now))
		}
	}
	return sum, errors.Join(errs...)
}

func (j *foldJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunFold(ctx, tenant)
	})
}
