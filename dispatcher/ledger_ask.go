package dispatcher

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/ledger"
	"github.com/asyncflow/asyncflow/dispatcher/internal/rates"
	"github.com/asyncflow/asyncflow/store"
)

// asks are what a dispatcher asks its ledger for: a lease, new tasks, and tasks that go on. Their
// limits come from the node's share of quotas, and from endpoints.
type asks struct{ *Dispatcher }

// reserve takes capacity for a lease of a type. It returns the type's current definition, since the
// wait may be long. Without any capacity, it puts the type back on the agenda: until the type is
// resumed, capacity is given back, or fullLook is over.
func (d asks) reserve(
	ctx context.Context, key store.TypeKey,
) (_ *store.Type, r reservation) {
	t, err := d.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		d.agenda.Forget(key)
		d.ledger.Forget(key)
		return nil, r
	}
	now := d.store.Clock.Now()
	if t.Paused() {
		d.agenda.Put(key, time.Time{}, time.Time{})
		return t, r
	}
	most, again := d.charge(t.Tenant, min(t.ScheduleLimit, d.cfg.Concurrency), now)
	if most > 0 {
		a := d.ask(t, most, now)
		a.Least = min(most, max(d.cfg.Concurrency/8, 1), a.Limits.Type, a.Limits.Tenant)
		n := d.ledger.Await(ctx, a, leaseLinger)
		again = now.Add(fullLook)
		if n == 0 && d.ledger.Why(a) == asyncflow.WaitType { // it is ramped up
			again = now.Add(contendedPause)
		}
		r = d.reservation(key, most, n, false)
	}
	t = d.current(t)
	if t.Paused() { // it was paused during the wait: see Quiesce
		r.cancel()
	}
	if r.n == 0 {
		d.agenda.Put(key, again, now.Add(fullPause))
	}
	return t, r
}

// ask returns the request for capacity for n tasks of a type.
func (d asks) ask(t *store.Type, n int, now time.Time) ledger.Ask {
	return ledger.Ask{Type: t.Key(), N: n, Least: n, Limits: d.limits(t, now), Now: now}
}

// reserveNew takes capacity for new tasks that begin with a stage, or for the first few of them.
func (d asks) reserveNew(
	ctx context.Context, t *store.Type, stage string, n int, now time.Time, patience time.Duration,
) (r reservation) {
	charged, _ := d.charge(t.Tenant, n, now)
	if charged == 0 {
		return r
	}
	a := d.ask(t, charged, now)
	a.New = true
	r = d.reservation(t.Key(), charged, d.ledger.Await(ctx, a, patience), false)
	current := d.current(t)
	if current.Paused() || current != t && !d.mayBeginAtOnce(current, stage) {
		r.cancel() // the type was changed during the wait: see Quiesce
	}
	return r
}

// keep lets up to n tasks at the end of a stage keep their capacity for the next one, stage.
func (d asks) keep(t *store.Type, stage string, n int, now time.Time) reservation {
	return d.reserveStage(t, stage, n, now, true)
}

// reserveNext takes capacity for up to n tasks that go on with a stage after a wait for other
// tasks.
func (d asks) reserveNext(t *store.Type, stage string, n int, now time.Time) reservation {
	return d.reserveStage(t, stage, n, now, false)
}

// reserveStage takes capacity for up to n tasks that go on with a stage, or lets them keep theirs.
func (d asks) reserveStage(
	t *store.Type, stage string, n int, now time.Time, kept bool,
) (r reservation) {
	charged, _ := d.charge(t.Tenant, n, now)
	if charged > 0 {
		a := d.ask(t, charged, now)
		a.New = true
		if a.Endpoints != nil {
			a.Endpoints = t.Serving(stage)
		}
		r = d.reservation(t.Key(), charged, d.capacityFor(a, kept), kept)
	}
	if d.current(t).Paused() {
		r.cancel()
	}
	if r.n < n { // the remaining tasks are first in line
		d.agenda.Filling(t.Key())
	}
	return r
}

// capacityFor returns for how many tasks of an ask there is capacity now.
func (d asks) capacityFor(a ledger.Ask, kept bool) int {
	if kept {
		return d.ledger.Keep(a)
	}
	return d.ledger.Await(d.sending, a, 0)
}

// limits returns the further bounds on the tasks of a type in flight on this node. Each node gets
// its share of a tenant's quota, rounded up. A node that the other nodes don't know yet gets none.
func (d asks) limits(t *store.Type, now time.Time) ledger.Limits {
	l := ledger.Limits{Type: t.Capacity(d.cfg.Concurrency, now), Tenant: d.cfg.Concurrency}
	if tenant, ok := d.store.Catalog.Tenant(t.Tenant); ok && tenant.Quotas.Concurrency > 0 {
		nodes := int64(d.store.Dispatchers())
		l.Tenant = int(min((tenant.Quotas.Concurrency+nodes-1)/nodes, int64(l.Tenant)))
		if d.store.Joining() {
			l.Tenant = 0
		}
	}
	if all := t.AllServing(); len(all) > 1 {
		l.Endpoints = all
	}
	return l
}

// charge takes up to n deliveries from what the tenant's rate allows now, and returns how many. If
// it allows none, again is when it allows one.
func (d asks) charge(tenant string, n int, now time.Time) (charged int, again time.Time) {
	t, ok := d.store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.DeliveriesPerSecond == 0 {
		return n, again
	}
	key := rates.Key{Tenant: tenant, Scope: "tenant"}
	tokens, again := d.rates.Available(key, t.Quotas.DeliveriesPerSecond, now)
	if soon := now.Add(contendedPause); again.Before(soon) {
		again = soon
	}
	charged = min(n, tokens)
	d.rates.Spend(key, t.Quotas.DeliveriesPerSecond, now, charged)
	return charged, again
}

// refund gives back deliveries that were charged and not made.
func (d asks) refund(tenant string, n int) {
	if n == 0 {
		return
	}
	if t, ok := d.store.Catalog.Tenant(tenant); ok && t.Quotas.DeliveriesPerSecond > 0 {
		key := rates.Key{Tenant: tenant, Scope: "tenant"}
		d.rates.Spend(key, t.Quotas.DeliveriesPerSecond, d.store.Clock.Now(), -n)
	}
}

// reservation is capacity for n tasks that are still to come, with a delivery for each in the rate
// of their tenant. The caller ends it once: by use when the tasks come, or by cancel. A further
// call does nothing.
type reservation struct {
	d    asks
	key  store.TypeKey
	n    int
	kept bool // the tasks are in flight already: they just ended a stage
}

// reservation returns the reservation of n tasks for which charged deliveries were charged. It
// refunds the deliveries that exceed n.
func (d asks) reservation(key store.TypeKey, charged, n int, kept bool) reservation {
	d.refund(key.Tenant, charged-n)
	return reservation{d: d, key: key, n: n, kept: kept}
}

// use hands the capacity over to n tasks with documents of some bytes, at most r.n, and gives the
// rest back. From then on each task holds its own: until it is settled, or see forgo.
func (r *reservation) use(n, bytes int) {
	if r.n == 0 {
		return
	}
	unused := r.n - n
	r.n = 0
	r.d.refund(r.key.Tenant, unused)
	if r.kept {
		r.d.ledger.Begun(r.key, unused)
		return
	}
	r.d.ledger.Unused(r.key, unused)
	r.d.ledger.Arrived(r.key, n, bytes)
}

// cancel gives all of the capacity back.
func (r *reservation) cancel() { r.use(0, 0) }

// forgo gives back the capacity of n tasks that were to begin and don't, and their deliveries.
func (d asks) forgo(t *store.Type, n, bytes int) {
	d.refund(t.Tenant, n)
	d.ledger.Begun(t.Key(), n)
	d.ledger.Release(t.Key(), n, bytes)
}

// forgoNext gives back what a task at the end of a stage kept for its next one, but not the
// capacity of the ended stage.
func (d asks) forgoNext(t *store.Type) {
	d.refund(t.Tenant, 1)
	d.ledger.Begun(t.Key(), 1)
}

// mayBeginAtOnce reports whether new tasks of a type need only capacity for their first stage, and
// whether this node would hear of other tasks that stand in line.
func (d *Dispatcher) mayBeginAtOnce(t *store.Type, stage string) bool {
	return d.passes(t) && t.Serves(stage)
}

// passes reports whether tasks of a type may bypass the line while it is empty.
func (d *Dispatcher) passes(t *store.Type) bool {
	return d.stopping.Err() == nil && d.store.Listening() &&
		!d.store.HasUnknownLeases(t.Tenant) && !d.blocked.has(t.Key()) && !d.standsInLine(t)
}

// standsInLine reports whether tasks of a type always stand in line: they need more than capacity,
// or the type has an interval between leases.
func (d *Dispatcher) standsInLine(t *store.Type) bool {
	return t.Limited(d.store.Clock.Now()) || !t.ScheduleInterval.IsZero()
}
