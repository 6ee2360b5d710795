package governance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// rescueLook is how often rescue looks at types that have something to do: it runs more often,
// for those of which it knows that a lease has run out.
const rescueLook = 3 * time.Second

// rescue ends the leases that ran out, of all types.
func (g *Governor) rescue(ctx context.Context) (int, error) {
	return g.eachType(ctx, rescueLook, func(o store.Overview) (int, error) {
		if o.Lease.IsZero() || o.Lease.After(g.store.Clock.Now()) {
			return 0, nil
		}
		return untilDone(func() (int, error) { return g.store.Rescue(ctx, o.Type) })
	})
}

// promote moves tasks that are due soon, or whose stage has an endpoint again, or whose
// flow key has room, to ready. It also wakes dispatchers for what has been due for a
// while: the news of it was lost.
func (g *Governor) promote(ctx context.Context) (int, error) {
	return g.eachType(ctx, 0, func(o store.Overview) (int, error) {
		now := g.store.Clock.Now()
		if !o.Ready.IsZero() && o.Ready.Before(now) {
			g.store.Wakeups.Announce(o.Type.Key(), o.Ready)
		}
		if len(o.Held) > 0 && o.Type.Limited(now) {
			g.store.Wakeups.Announce(o.Type.Key(), now) // the next lease looks at them
		}
		stuck, err := g.unholdStuck(ctx, o)
		served := served(o.Type, o.Held, now)
		due := !o.Wait.IsZero() && o.Wait.Before(now.Add(asyncflow.Soon))
		if err != nil || !due && len(served) == 0 && !(o.HeldKeys && o.Type.Flow == nil) {
			return stuck, err
		}
		n, err := untilDone(func() (int, error) { return g.store.Promote(ctx, o.Type, served) })
		return stuck + n, err
	})
}

// unholdStuck looks at all flow keys with tasks that are held.
func (g *Governor) unholdStuck(ctx context.Context, o store.Overview) (sum int, err error) {
	if !o.HeldKeys || o.Type.Flow == nil {
		return 0, nil
	}
	for last := ""; ; {
		var n int
		n, last, err = g.store.ReleaseStuck(ctx, o.Type, last)
		sum += n
		if err != nil || last == "" {
			return sum, err
		}
	}
}

// served returns those stages with held tasks that have an endpoint. Those of a guarded
// type come back by its leases.
func served(t *store.Type, held []string, now time.Time) (served []string) {
	if t.Limited(now) {
		return nil
	}
	for _, stage := range held {
		if place, _ := t.Place(stage, 1); t.Serves(place) {
			served = append(served, stage)
		}
	}
	return served
}

// expireKeys deletes idempotency keys whose windows are over.
func (g *Governor) expireKeys(ctx context.Context) (int, error) {
	tenants, err := g.store.TenantsToExpire(ctx)
	if err != nil {
		return 0, err
	}
	return each(tenants, func(tenant string) (int, error) { return g.store.ExpireKeys(ctx, tenant) })
}

// fold adds up the tallies of times that are over, of the tenants whose tallies are not
// what a fold has left.
func (g *Governor) fold(ctx context.Context) (int, error) {
	unfolded, err := g.unfolded(ctx)
	if err != nil {
		return 0, err
	}
	return each(slices.Sorted(maps.Keys(unfolded)), func(tenant string) (int, error) {
		n, err := g.store.Fold(ctx, tenant)
		if err == nil && n == 0 {
			g.folded.Store(tenant, unfolded[tenant])
		}
		return n, err
	})
}

func (g *Governor) unfolded(ctx context.Context) (map[string]store.Unfolded, error) {
	unfolded, err := g.store.Unfolded(ctx)
	maps.DeleteFunc(unfolded, func(tenant string, u store.Unfolded) bool {
		known, _ := g.folded.Load(tenant)
		return known == u
	})
	return unfolded, err
}

// each takes a step for each tenant until it is done, and adds up. One tenant's failure
// doesn't keep the others from their turn.
func each(tenants []string, step func(tenant string) (int, error)) (int, error) {
	var sum int
	var errs []error
	for _, tenant := range tenants {
		n, err := untilDone(func() (int, error) { return step(tenant) })
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// forget deletes the rows of nodes that are gone, of operations and episodes of alerts
// that ended long ago, old minutes of endpoints, signing secrets that sign no more, and
// what the audit no longer keeps.
func (g *Governor) forget(ctx context.Context) (int, error) {
	g.attention.tidy(g.store.Catalog.Tenants())
	sum, err := g.store.ForgetNodes(ctx)
	audit, err2 := g.forgetAudit(ctx, "")
	sum += audit
	errs := []error{err, err2}
	for tenant := range g.store.Catalog.Tenants() {
		for _, forget := range []func(context.Context, string) (int, error){g.store.ForgetOperations, g.store.ForgetEpisodes, g.store.ForgetMinutes, g.store.ForgetSecrets, g.forgetAudit} {
			n, err := forget(ctx, tenant)
			sum += n
			errs = append(errs, err)
		}
	}
	return sum, errors.Join(errs...)
}

// forgetAudit deletes what the audit of a tenant (or of those that belong to none) no longer
// keeps.
func (g *Governor) forgetAudit(ctx context.Context, tenant string) (int, error) {
	if g.audit == 0 {
		return 0, nil
	}
	return untilDone(func() (int, error) { return g.store.ForgetAudit(ctx, tenant, g.audit) })
}

// lookForgetAudit counts it.
func (g *Governor) lookForgetAudit(ctx context.Context, tenant string) (int, error) {
	if g.audit == 0 {
		return 0, nil
	}
	return g.store.LookForgetAudit(ctx, tenant, g.audit)
}

// eachType calls do for each type of each tenant that is worth a look, and adds up; see pick
// for every. One type's failure doesn't keep the others from their turn.
func (g *Governor) eachType(ctx context.Context, every time.Duration, do func(store.Overview) (int, error)) (int, error) {
	var sum int
	var errs []error
	for tenant := range g.store.Catalog.Tenants() {
		overviews, err := g.overviews(ctx, tenant, every)
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
