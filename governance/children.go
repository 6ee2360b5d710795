package governance

import (
	"context"

	"github.com/asyncflow/asyncflow/store"
)

// childrenJob compares the counts of tasks that wait for children with the children themselves, for
// all tenants with such tasks, and corrects wrong counts.
type childrenJob struct{ visits }

// run returns how many fan-outs it corrected.
func (j *childrenJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.OpenFanOuts, j.store.SweepFanOuts)
}

func (j *childrenJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunFanOuts(ctx, tenant)
	})
}
