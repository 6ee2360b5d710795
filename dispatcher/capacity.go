package dispatcher

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/agenda"
	"github.com/asyncflow/asyncflow/dispatcher/internal/ledger"
	"github.com/asyncflow/asyncflow/dispatcher/internal/rates"
	"github.com/asyncflow/asyncflow/store"
)

// capacity is how many more tasks may begin on a node: for a lease, for new tasks, and for tasks
// that go on. The ledger counts the tasks in flight; further limits come from the node's share of
// quotas and rates, and from endpoints.
type capacity struct {
	store  *store.Store
	agenda *agenda.Agenda[store.TypeKey]
	ledger *ledger.Ledger
	rates  *rates.Rates
	most   int // tasks in flight on the node
}

// reserve takes capacity for a lease of a type. It returns the type's current definition, since the
// wait may be long. Without any capacity, it puts the type back on the agenda: until the type is
// resumed, capacity is given back, or fullLook is over.
func (c *capacity) reserve(
	ctx context.Context, key store.TypeKey,
) (_ *store.Type, r reservation) {
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		c.agenda.Forget(key)
		c.ledger.Forget(key)
		return nil, r
	}
	now := c.store.Clock.Now()
	if t.Paused() {
		c.agenda.Put(key, time.Time{}, time.Time{})
		return t, r
	}
	most, again := c.charge(t.Tenant, min(t.ScheduleLimit, c.most), now)
	if most > 0 {
		a := c.ask(t, most, now)
		a.Least = min(most, max(c.most/8, 1), a.Limits.Type, a.Limits.Tenant)
		n := c.ledger.Await(ctx, a, leaseLinger)
		again = now.Add(fullLook)
		if n == 0 && c.ledger.Why(a) == asyncflow.WaitType { // it is ramped up
			again = now.Add(contendedPause)
		}
		r = c.reservation(key, most, n, false)
	}
	t = currentType(c.store, t)
	if t.Paused() { // it was paused during the wait: see Quiesce
		r.cancel()
	}
	if r.n == 0 {
		c.agenda.Put(key, again, now.Add(fullPause))
	}
	return t, r
}

// ask returns the request for capacity for n tasks of a type.
func (c *capacity) ask(t *store.Type, n int, now time.Time) ledger.Ask {
	return ledger.Ask{Type: t.Key(), N: n, Least: n, Limits: c.limits(t, now), Now: now}
}

// reserveNew takes capacity for new tasks, or for the first few of them. mayBegin reports whether
// they may still begin at once if their type was changed during the wait.
func (c *capacity) reserveNew(
	ctx context.Context, t *store.Type, n int, now time.Time, patience time.Duration,
	mayBegin func(*store.Type) bool,
) (r reservation) {
	charged, _ := c.charge(t.Tenant, n, now)
	if charged == 0 {
		return r
	}
	a := c.ask(t, charged, now)
	a.New = true
	r = c.reservation(t.Key(), charged, c.ledger.Await(ctx, a, patience), false)
	current := currentType(c.store, t)
	if current.Paused() || current != t && !mayBegin(current) {
		r.cancel() // the type was changed during the wait: see Quiesce
	}
	return r
}

// keep lets up to n tasks at the end of a stage keep their capacity for the next one, stage.
func (c *capacity) keep(t *store.Type, stage string, n int, now time.Time) reservation {
	return c.reserveStage(t, stage, n, now, true)
}

// reserveNext takes capacity for up to n tasks that go on with a stage after a wait for other
// tasks.
func (c *capacity) reserveNext(t *store.Type, stage string, n int, now time.Time) reservation {
	return c.reserveStage(t, stage, n, now, false)
}

// reserveStage takes capacity for up to n tasks that go on with a stage, or lets them keep theirs.
func (c *capacity) reserveStage(
	t *store.Type, stage string, n int, now time.Time, kept bool,
) (r reservation) {
	charged, _ := c.charge(t.Tenant, n, now)
	if charged > 0 {
		a := c.ask(t, charged, now)
		a.New = true
		if a.Endpoints != nil {
			a.Endpoints = t.Serving(stage)
		}
		r = c.reservation(t.Key(), charged, c.capacityFor(a, kept), kept)
	}
	if currentType(c.store, t).Paused() {
		r.cancel()
	}
	if r.n < n { // the remaining tasks are first in line
		c.agenda.Filling(t.Key())
	}
	return r
}

// capacityFor returns for how many tasks of an ask there is capacity now.
func (c *capacity) capacityFor(a ledger.Ask, kept bool) int {
	if kept {
		return c.ledger.Keep(a)
	}
	return c.ledger.Await(context.Background(), a, 0) // it doesn't wait
}

// limits returns the further bounds on the tasks of a type in flight on this node. Each node gets
// its share of a tenant's quota, rounded up. A node that the other nodes don't know yet gets none.
func (c *capacity) limits(t *store.Type, now time.Time) ledger.Limits {
	l := ledger.Limits{Type: t.Capacity(c.most, now), Tenant: c.most}
	if tenant, ok := c.store.Catalog.Tenant(t.Tenant); ok && tenant.Quotas.Concurrency > 0 {
		nodes := int64(c.store.Dispatchers())
		l.Tenant = int(min((tenant.Quotas.Concurrency+nodes-1)/nodes, int64(l.Tenant)))
		if c.store.Joining() {
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
func (c *capacity) charge(tenant string, n int, now time.Time) (charged int, again time.Time) {
	t, ok := c.store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.DeliveriesPerSecond == 0 {
		return n, again
	}
	key := rates.Key{Tenant: tenant, Scope: "tenant"}
	tokens, again := c.rates.Available(key, t.Quotas.DeliveriesPerSecond, now)
	if soon := now.Add(contendedPause); again.Before(soon) {
		again = soon
	}
	charged = min(n, tokens)
	c.rates.Spend(key, t.Quotas.DeliveriesPerSecond, now, charged)
	return charged, again
}

// refund gives back deliveries that were charged and not made.
func (c *capacity) refund(tenant string, n int) {
	if n == 0 {
		return
	}
	if t, ok := c.store.Catalog.Tenant(tenant); ok && t.Quotas.DeliveriesPerSecond > 0 {
		key := rates.Key{Tenant: tenant, Scope: "tenant"}
		c.rates.Spend(key, t.Quotas.DeliveriesPerSecond, c.store.Clock.Now(), -n)
	}
}

// reservation is capacity for n tasks that are still to come, with a delivery for each in the rate
// of their tenant. The caller ends it once: by use when the tasks come, or by cancel. A further
// call does nothing.
type reservation struct {
	c    *capacity
	key  store.TypeKey
	n    int
	kept bool // the tasks are in flight already: they just ended a stage
}

// reservation returns the reservation of n tasks for which charged deliveries were charged. It
// refunds the deliveries that exceed n.
func (c *capacity) reservation(key store.TypeKey, charged, n int, kept bool) reservation {
	c.refund(key.Tenant, charged-n)
	return reservation{c: c, key: key, n: n, kept: kept}
}

// use hands the capacity over to n tasks with documents of some bytes, at most r.n, and gives the
// rest back. From then on each task holds its own: until it is settled, or see forgo.
func (r *reservation) use(n, bytes int) {
	if r.n == 0 {
		return
	}
	unused := r.n - n
	r.n = 0
	r.c.refund(r.key.Tenant, unused)
	if r.kept {
		r.c.ledger.Begun(r.key, unused)
		return
	}
	r.c.ledger.Unused(r.key, unused)
	r.c.ledger.Arrived(r.key, n, bytes)
}

// cancel gives all of the capacity back.
func (r *reservation) cancel() { r.use(0, 0) }

// forgo gives back the capacity of n tasks that were to begin and don't, and their deliveries.
func (c *capacity) forgo(t *store.Type, n, bytes int) {
	c.refund(t.Tenant, n)
	c.ledger.Begun(t.Key(), n)
	c.ledger.Release(t.Key(), n, bytes)
}

// forgoNext gives back what a task at the end of a stage kept for its next one, but not the
// capacity of the ended stage.
func (c *capacity) forgoNext(t *store.Type) {
	c.refund(t.Tenant, 1)
	c.ledger.Begun(t.Key(), 1)
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
