package governance

import (
	"context"

	"github.com/asyncflow/asyncflow/store"
)

// expireKeysJob deletes idempotency keys after their windows. A tenant rests until the first window
// ends.
type expireKeysJob struct{ visits }

func (j *expireKeysJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.FirstKeys, func(ctx context.Context, tenant string) (int, error) {
		return untilDone(func() (int, error) { return j.store.ExpireKeys(ctx, tenant) })
	})
}

func (j *expireKeysJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunKeys(ctx, tenant)
	})
}
