package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// rescueEvery is how often rescue visits types that stay busy. The job runs more often, for the
// types of which it knows that a lease has run out.
const rescueEvery = 3 * time.Second

// rescue ends the leases that ran out, of all types.
func (g *Governor) rescue(ctx context.Context) (int, error) {
	return g.eachType(ctx, rescueEvery, func(o store.Overview) (int, error) {
		if o.Lease.IsZero() || o.Lease.After(g.store.Clock.Now()) {
			return 0, nil
		}
		return untilDone(func() (int, error) { return g.store.Rescue(ctx, o.Type) })
	})
}

func (g *Governor) dryRunRescue(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTypes(ctx, func(o store.Overview) (int, error) {
		return g.store.DryRunRescue(ctx, o.Type)
	})
}
