package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

const (
	// followsEvery is the least time between two readings of what has happened in outboxes.
	followsEvery = 4 * time.Second
	// followAfter is how long the node that wrote a row of an outbox has to handle it.
	followAfter = 2 * time.Second
)

// followUp does what transactions have left to do whose node didn't, of all tenants, and ends the
// waits for tasks that didn't come in time.
func (g *Governor) followUp(ctx context.Context) (int, error) {
	due, err := g.duePlans(ctx, &g.follows, &g.followed, g.store.FirstFollowUps, -followAfter)
	sum, errs := 0, []error{err}
	for _, tenant := range due {
		n, err := g.followUpOf(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// followUpOf is followUp for one tenant.
func (g *Governor) followUpOf(ctx context.Context, tenant string) (sum int, err error) {
	for more := true; more && ctx.Err() == nil; {
		var n int
		n, more, err = g.store.SweepFollowUps(ctx, tenant)
		sum += n
		if err != nil {
			return sum, err
		}
	}
	return sum, ctx.Err()
}

func (g *Governor) dryRunFollowUp(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunFollowUps(ctx, tenant)
	})
}
