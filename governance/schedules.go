package governance

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow/store"
)

// scheduleRounds is how many rounds a tenant's schedules get before the next tenant's turn.
const scheduleRounds = 10

// schedules submits the tasks of due ticks, of all tenants. Other nodes do the same; each tick is
// submitted by one node.
func (g *Governor) schedules(ctx context.Context) (int, error) {
	tenants, err := g.store.DueSchedules(ctx)
	sum, errs := 0, []error{err}
	for _, tenant := range tenants {
		n, err := g.tick(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// tick submits the tasks of a tenant's due ticks, and returns how many. The next run of the job
// tries a schedule that failed again.
func (g *Governor) tick(ctx context.Context, tenant string) (sum int, err error) {
	var failed []string
	for range scheduleRounds {
		step, err := g.store.TickSchedules(ctx, tenant, g.tasks.Submit, failed)
		sum += step.Tasks
		if err != nil || step.Schedules == 0 {
			return sum, err
		}
		failed = append(failed, step.Failed...)
	}
	return sum, nil
}

func (g *Governor) dryRunSchedules(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunSchedules(ctx, tenant)
	})
}
