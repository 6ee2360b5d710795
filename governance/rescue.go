package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// rescueEvery is how often rescue visits types that stay busy. The job runs more often, for types
// with a lease that ran out as far as it knows.
const rescueEvery = 3 * time.Second

// rescueJob ends the leases that ran out, of all types.
type rescueJob struct{ *shared }

func (j *rescueJob) run(ctx context.Context) (int, error) {
	return j.eachType(ctx, rescueEvery, func(o store.Overview) (int, error) {
		if o.Lease.IsZero() || o.Lease.After(j.store.Clock.Now()) {
			return 0, nil
		}
		return untilDone(func() (int, error) { return j.store.Rescue(ctx, o.Type) })
	})
}

func (j *rescueJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTypes(ctx, func(o store.Overview) (int, error) {
		return j.store.DryRunRescue(ctx, o.Type)
	})
}
