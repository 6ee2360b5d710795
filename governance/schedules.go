package governance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// scheduleRounds is how many rounds a tenant's schedules get before the next tenant's turn.
const scheduleRounds = 10

// schedules submits the tasks of due ticks, of all tenants. Other nodes do the same; each tick is
// submitted by one node. A tick may pass to another node and come later, never earlier, without a
// new version of the tenant's configuration.
func (g *Governor) schedules(ctx context.Context) (int, error) {
	due, err := g.duePlans(ctx, &g.plans, &g.ticked, g.store.FirstTicks, 0)
	sum, errs := 0, []error{err}
	for _, tenant := range due {
		n, err := g.tick(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// duePlans returns the tenants whose plans are due within a time. happened is what has happened in
// the tables of the plans. The other tenants rest until the first
// of their plans is due. first returns when that is.
func (g *Governor) duePlans(
	ctx context.Context,
	happened *activity,
	resting *rests,
	first func(ctx context.Context, tenants []string) (map[string]time.Time, error),
	ahead time.Duration,
) (due []string, err error) {
	plans, err := happened.read(ctx, g.store)
	if err != nil {
		return nil, err
	}
	restless := resting.restless(g.store.Catalog.Versions(), plans, g.store.Clock.Now())
	at, err := first(ctx, slices.Sorted(maps.Keys(restless)))
	if err != nil {
		return nil, err
	}
	now := g.store.Clock.Now()
	for _, tenant := range slices.Sorted(maps.Keys(restless)) {
		next, ok := at[tenant]
		if ok && !next.After(now.Add(ahead)) {
			due = append(due, tenant)
			continue
		}
		if ok {
			next = next.Add(-ahead)
		}
		resting.rest(tenant, restless[tenant], next)
	}
	return due, nil
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
