package dispatcher

import (
	"context"
	"fmt"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// fanOut settles a leased task whose stage is done by children: it waits for them from then on. An
// empty list joins at once.
func (d *Dispatcher) fanOut(t *store.Type, l asyncflow.Lease, rule asyncflow.FanOut) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut}
	work, err := rule.Spread(l.Context)
	most := int64(asyncflow.DefaultMaxChildren)
	if tenant, ok := d.store.Catalog.Tenant(t.Tenant); ok {
		most = tenant.Quotas.Children
	}
	if most <= 0 { // no quota
		most = asyncflow.MaxChildren
	}
	if err == nil && int64(work.Count) > most {
		err = fmt.Errorf("fan_out: the task would have %d children; the tenant's quota %s is %d",
			work.Count, asyncflow.QuotaChildren, most)
	}
	switch {
	case err != nil:
		o.Kind, o.Error = asyncflow.OutcomeRejected, err.Error()
	case work.Count == 0:
		o.Kind, o.Output = asyncflow.OutcomeJoined, store.NoResults
	default:
		o.FannedOut = &asyncflow.FannedOut{FanOut: rule, Count: work.Count}
	}
	d.settle(t, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, l, o, d.store.Clock.Now())})
}

// withoutPaused puts leased children aside whose parents are paused, and returns the other tasks.
func (d *Dispatcher) withoutPaused(t *store.Type, leases []asyncflow.Lease) []asyncflow.Lease {
	child := func(l asyncflow.Lease) bool { return l.Options.Child != nil }
	if !slices.ContainsFunc(leases, child) {
		return leases
	}
	ctx, cancel := context.WithTimeout(d.sending, leaseTime)
	defer cancel()
	others, err := d.store.ParkPaused(ctx, t, leases)
	if err != nil {
		d.giveBack(t, leases, "it can't be read whether parents are paused: "+err.Error())
		return nil
	}
	if n := len(leases) - len(others); n > 0 {
		d.release(t, n, contextBytes(leases)-contextBytes(others))
	}
	return others
}
