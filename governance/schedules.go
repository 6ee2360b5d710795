package governance

import (
	"context"
	"errors"
)

// scheduleRounds is how many rounds a tenant's schedules have before it is another one's
// turn.
const scheduleRounds = 10

// schedules submits the tasks of ticks that are due, of all tenants. Other nodes do the
// same: each tick is one node's.
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

// tick submits what is due of a tenant, and returns how many tasks. A schedule that fails
// has its next try at the next run.
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
