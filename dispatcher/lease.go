package dispatcher

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// leasers is how many types are leased from at once.
	leasers = 2
	// leaseTime bounds one lease against a database that doesn't answer.
	leaseTime = 10 * time.Second
	// leaseLinger is how long a lease waits for more capacity than a little: it costs nearly the
	// same for 5 tasks as for 50.
	leaseLinger = 2 * time.Millisecond

	// The pauses after a lease that found nothing where something is due (another node is about
	// to take it), and after a failure.
	contendedPause = 20 * time.Millisecond
	failurePause   = time.Second

	// A type that got no capacity is tried again when some is given back, but not before fullPause
	// is over; and after fullLook, since the number of nodes may have changed. So is a type whose
	// tasks were to come in line, if no news of them has come.
	fullPause = 2 * time.Millisecond
	fullLook  = time.Second
)

func (d *Dispatcher) leaseLoop(ctx context.Context) error {
	for {
		key, ok := d.agenda.take(ctx)
		if !ok {
			return nil
		}
		d.leaseOnce(ctx, key)
	}
}

// leaseOnce leases tasks of one type and starts their attempts.
func (d *Dispatcher) leaseOnce(ctx context.Context, key store.TypeKey) {
	t, n := d.reserve(ctx, key)
	if n == 0 { // no others come now to fill the open batches
		d.sendOpen(func(k store.TypeKey) bool { return k == key })
		return
	}
	leasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTime)
	leases, next, more, err := d.lease(leasing, t, n)
	cancel()
	d.refund(t.Tenant, n-len(leases))
	d.ledger.Unused(key, n-len(leases))
	d.ledger.Arrived(key, len(leases), contextBytes(leases))
	d.start(t, leases)
	now := d.store.Clock.Now()
	switch {
	case store.IsHeld(err): // a table is locked, such as one that is being sealed
		next = now.Add(contendedPause)
	case err != nil:
		d.log.Warn("lease failed, trying again", "tenant", key.Tenant, "type", key.Type, "error", err)
		next = now.Add(failurePause)
	case len(leases) < n && !more && !next.IsZero() && !next.After(now):
		next = now.Add(contendedPause)
	case next.IsZero() && d.cfg.Poll > 0:
		next = now.Add(d.pollPause())
	case len(leases) < n && !more:
		d.agenda.drained(key)
	}
	d.agenda.put(key, next, now.Add(t.ScheduleInterval.Std()))
	d.ledger.Serve() // the line may be empty now
}

func contextBytes(leases []asyncflow.Lease) (sum int) {
	for i := range leases {
		sum += len(leases[i].Context)
	}
	return sum
}

// reserve takes capacity for a lease of a type, and returns the type as it is then: the wait may
// have been long. Without any capacity, it puts the type back on the agenda: until the type is
// resumed, capacity is given back, or some time is over.
func (d *Dispatcher) reserve(ctx context.Context, key store.TypeKey) (*store.Type, int) {
	t, err := d.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		d.agenda.forget(key)
		d.ledger.Forget(key)
		return nil, 0
	}
	now := d.store.Clock.Now()
	if t.Paused() {
		d.agenda.put(key, time.Time{}, time.Time{})
		return t, 0
	}
	most, again := d.charge(t.Tenant, min(t.ScheduleLimit, d.cfg.Concurrency), now)
	n := 0
	if most > 0 {
		a := d.ask(t, most, now)
		a.Least = min(most, max(d.cfg.Concurrency/8, 1), a.Limits.Type, a.Limits.Tenant)
		n = d.ledger.Await(ctx, a, leaseLinger)
		if again = now.Add(fullLook); n == 0 && d.ledger.Why(a) == asyncflow.WaitType { // it is ramped up
			again = now.Add(contendedPause)
		}
	}
	if t = d.current(t); t.Paused() { // while it was reserved: see Quiesce
		d.ledger.Unused(key, n)
		n = 0
	}
	d.refund(t.Tenant, most-n)
	if n == 0 {
		d.agenda.put(key, again, now.Add(fullPause))
	}
	return t, n
}

// ask returns the question for capacity for n tasks of a type.
func (d *Dispatcher) ask(t *store.Type, n int, now time.Time) Ask {
	return Ask{Type: t.Key(), N: n, Least: n, Limits: d.limits(t, now), Now: now}
}

// reserveNew takes capacity for new tasks, or for the first of them.
func (d *Dispatcher) reserveNew(
	ctx context.Context, t *store.Type, n int, now time.Time, patience time.Duration,
) int {
	charged, _ := d.charge(t.Tenant, n, now)
	a := d.ask(t, charged, now)
	a.New = true
	got := 0
	if charged > 0 {
		got = d.ledger.Await(ctx, a, patience)
	}
	if now := d.current(t); got > 0 && (now.Paused() || now != t && !d.mayBeginAtOnce(now)) {
		d.ledger.Unused(t.Key(), got) // it was changed while it was reserved: see Quiesce
		got = 0
	}
	d.refund(t.Tenant, charged-got)
	return got
}

// keep takes the capacity of tasks that have ended a stage for the next one, and returns for how
// many.
func (d *Dispatcher) keep(t *store.Type, n int, now time.Time) int {
	charged, _ := d.charge(t.Tenant, n, now)
	a := d.ask(t, charged, now)
	a.New = true
	kept := 0
	if charged > 0 {
		kept = d.ledger.Keep(a)
	}
	if kept > 0 && d.current(t).Paused() {
		d.ledger.Begun(t.Key(), kept)
		kept = 0
	}
	if kept < n { // they stand before whatever comes next
		d.agenda.filling(t.Key())
	}
	d.refund(t.Tenant, charged-kept)
	return kept
}

// limits returns what bounds the tasks of a type in flight here besides the node's capacity. Each
// node has its share of a tenant's quota, rounded up; one that the others don't know of yet, none.
func (d *Dispatcher) limits(t *store.Type, now time.Time) Limits {
	l := Limits{Type: t.Room(d.cfg.Concurrency, now), Tenant: d.cfg.Concurrency}
	if tenant, ok := d.store.Catalog.Tenant(t.Tenant); ok && tenant.Quotas.Concurrency > 0 {
		nodes := int64(d.store.Dispatchers())
		l.Tenant = int(min((tenant.Quotas.Concurrency+nodes-1)/nodes, int64(l.Tenant)))
		if d.store.Joining() {
			l.Tenant = 0
		}
	}
	if t.ServesSeveral() {
		for _, e := range t.AllEndpoints() {
			if e.Serves() {
				l.Endpoints = append(l.Endpoints, e.ID)
			}
		}
	}
	return l
}

// charge takes up to n deliveries from what the tenant's rate allows now, and returns how many. If
// there are none, again is when there is one.
func (d *Dispatcher) charge(tenant string, n int, now time.Time) (charged int, again time.Time) {
	t, ok := d.store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.DeliveriesPerSecond == 0 {
		return n, again
	}
	key := rateKey{tenant, "tenant", ""}
	tokens, again := d.rates.look(key, t.Quotas.DeliveriesPerSecond, now)
	if soon := now.Add(contendedPause); again.Before(soon) {
		again = soon
	}
	charged = min(n, tokens)
	d.rates.take(key, t.Quotas.DeliveriesPerSecond, now, charged)
	return charged, again
}

// refund gives back deliveries that were charged and not made.
func (d *Dispatcher) refund(tenant string, n int) {
	if n == 0 {
		return
	}
	if t, ok := d.store.Catalog.Tenant(tenant); ok && t.Quotas.DeliveriesPerSecond > 0 {
		d.rates.take(rateKey{tenant, "tenant", ""}, t.Quotas.DeliveriesPerSecond, d.store.Clock.Now(), -n)
	}
}

// lease leases up to n tasks of a type, for which capacity was taken, by its limits. more
// reports whether blocked tasks were in the way, which are not any more.
func (d *Dispatcher) lease(ctx context.Context, t *store.Type, n int) (
	leases []asyncflow.Lease, next time.Time, more bool, err error) {
	now := d.store.Clock.Now()
	most := d.ledger.ForAnyEndpoint(t.Key(), d.limits(t, now).Endpoints, n)
	if !d.blocked.has(t.Key()) && !t.Limited(now) && most > 0 {
		leases, next, err = d.store.Lease(ctx, t, min(n, most))
		return leases, next, false, err
	}
	return d.leaseLimited(ctx, t, n, now)
}
