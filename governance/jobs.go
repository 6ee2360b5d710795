package governance

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// rescue ends the leases that ran out, of all types.
func (g *Governor) rescue(ctx context.Context) (int, error) {
	return g.eachType(ctx, func(o store.Overview) (int, error) {
		if o.Lease.IsZero() || o.Lease.After(g.store.Clock.Now()) {
			return 0, nil
		}
		return untilDone(func() (int, error) { return g.store.Rescue(ctx, o.Type) })
	})
}

// promote moves tasks that are due soon, or whose stage has an endpoint again, to
// ready. It also wakes dispatchers for what has been due for a while: the news of
// it was lost.
func (g *Governor) promote(ctx context.Context) (int, error) {
	return g.eachType(ctx, func(o store.Overview) (int, error) {
		now := g.store.Clock.Now()
		if !o.Ready.IsZero() && o.Ready.Before(now) {
			g.store.Wakeups.Announce(o.Type.Key(), o.Ready)
		}
		served := servedStages(o)
		due := !o.Wait.IsZero() && o.Wait.Before(now.Add(asyncflow.Soon))
		if !due && len(served) == 0 {
			return 0, nil
		}
		return untilDone(func() (int, error) { return g.store.Promote(ctx, o.Type, served) })
	})
}

// servedStages returns the stages with held tasks that have an endpoint.
func servedStages(o store.Overview) []string {
	var served []string
	for _, stage := range o.Held {
		if place, _ := o.Type.Place(stage, 1); len(o.Type.Endpoints(place)) > 0 {
			served = append(served, stage)
		}
	}
	return served
}

// expireKeys deletes idempotency keys whose windows are over.
func (g *Governor) expireKeys(ctx context.Context) (int, error) {
	return g.eachTenant(func(tenant string) (int, error) { return g.store.ExpireKeys(ctx, tenant) })
}

// fold adds up the tallies of times that are over.
func (g *Governor) fold(ctx context.Context) (int, error) {
	return g.eachTenant(func(tenant string) (int, error) { return g.store.Fold(ctx, tenant) })
}

// eachTenant takes a step for each tenant until it is done, and adds up. One tenant's
// failure doesn't keep the others from their turn.
func (g *Governor) eachTenant(step func(tenant string) (int, error)) (int, error) {
	var sum int
	var errs []error
	for tenant := range g.store.Catalog.Tenants() {
		n, err := untilDone(func() (int, error) { return step(tenant) })
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// forget deletes the rows of nodes that are gone, and of operations and episodes of
// alerts that ended long ago.
func (g *Governor) forget(ctx context.Context) (int, error) {
	sum, err := g.store.ForgetNodes(ctx)
	errs := []error{err}
	for tenant := range g.store.Catalog.Tenants() {
		n, err := g.store.ForgetOperations(ctx, tenant)
		sum += n
		errs = append(errs, err)
		n, err = g.store.ForgetEpisodes(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// eachType calls do for each type of each tenant, and adds up. One type's failure
// doesn't keep the others from their turn.
func (g *Governor) eachType(ctx context.Context, do func(store.Overview) (int, error)) (int, error) {
	var sum int
	var errs []error
	for tenant := range g.store.Catalog.Tenants() {
		overviews, err := g.store.Overviews(ctx, tenant)
		errs = append(errs, err)
		for _, o := range overviews {
			n, err := do(o)
			sum += n
			errs = append(errs, err)
		}
	}
	return sum, errors.Join(errs...)
}

// untilDone repeats a step for as long as it finds a full batch to do, and adds up.
func untilDone(step func() (int, error)) (int, error) {
	var sum int
	for {
		n, err := step()
		sum += n
		if err != nil || n < store.GovernBatch {
			return sum, err
		}
	}
}
