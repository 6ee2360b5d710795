package governance

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

// expireKeysJob deletes idempotency keys whose windows are over. A tenant rests until the first
// window ends.
type expireKeysJob struct{ visits }

func (j *expireKeysJob) run(ctx context.Context) (int, error) {
	restless, err := j.restless(ctx)
	if err != nil {
		return 0, err
	}
	first, err := j.store.FirstKeys(ctx, slices.Collect(maps.Keys(restless)))
	if err != nil {
		return 0, err
	}
	sum, errs, now := 0, []error{}, j.store.Clock.Now()
	for tenant, state := range restless {
		if at, ok := first[tenant]; ok && !at.After(now) {
			n, err := untilDone(func() (int, error) { return j.store.ExpireKeys(ctx, tenant) })
			sum, errs = sum+n, append(errs, err)
			continue
		}
		j.rests.rest(tenant, state, first[tenant])
	}
	return sum, errors.Join(errs...)
}

func (j *expireKeysJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunKeys(ctx, tenant)
	})
}
