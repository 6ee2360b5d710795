package governance

import (
	"context"

	"github.com/asyncflow/asyncflow/store"
)

// dependenciesJob finds tasks that still wait for tasks that are over, of all tenants with waiting
// tasks: no node followed these ends. The job follow-up does the rest, if no node does it at once.
type dependenciesJob struct{ visits }

func (j *dependenciesJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.OpenEdges, j.store.SweepOpenEdges)
}

func (j *dependenciesJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunOpenEdges(ctx, tenant)
	})
}
