package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// dropTenantsJob drops deleted tenants after their grace.
type dropTenantsJob struct{ *shared }

// run returns how many tables the dropped tenants had.
func (j *dropTenantsJob) run(ctx context.Context) (int, error) {
	due, err := j.store.DueDrops(ctx)
	sum, errs := 0, []error{err}
	for _, d := range due {
		n, err := j.dropTenant(ctx, d.Tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// dropTenant drops a tenant in steps, once every node heard of the drop.
func (j *dropTenantsJob) dropTenant(ctx context.Context, slug string) (int, error) {
	since, err := j.store.BeginDrop(ctx, slug)
	if err != nil || since.IsZero() {
		return 0, err
	}
	if !sleep.For(ctx, max(0, spread-j.since(since))) {
		return 0, ctx.Err()
	}
	start, sum := time.Now(), 0
	for ctx.Err() == nil {
		step, err := j.store.DropStep(ctx, slug)
		sum += step.Tables
		switch {
		case err != nil:
			return sum, err
		case !step.Left:
			j.log.Info("tables of a deleted tenant dropped", "tenant", slug, "tables", sum,
				"duration", time.Since(start).Round(time.Millisecond))
			return sum, nil
		}
	}
	return sum, ctx.Err()
}

// dryRun returns how many tables would be dropped now, by tenant.
func (j *dropTenantsJob) dryRun(ctx context.Context) ([]store.Due, error) {
	due, err := j.store.DueDrops(ctx)
	all := make([]store.Due, len(due))
	for i, d := range due {
		all[i] = store.Due{Tenant: d.Tenant, Rows: d.Tables}
	}
	return withoutEmpty(all), err
}
