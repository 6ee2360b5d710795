package dispatcher

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// leasers is how many types are leased from at once.
	leasers = 2
	// leaseTime bounds one lease against a database that doesn't answer.
	leaseTime = 10 * time.Second
	// leaseLinger is how long a lease waits for more capacity if there is only a little: a lease of
	// 5 tasks costs nearly as much as one of 50.
	leaseLinger = 2 * time.Millisecond

	// The pauses after a lease that found nothing where something is due (another node is about
	// to take it), after one that met a locked table (for all types of the tenant), and after a
	// failure.
	contendedPause = 20 * time.Millisecond
	lockedPause    = 50 * time.Millisecond
	failurePause   = time.Second

	// claimsPause is the time between two leases of a type if claimers get all its tasks.
	claimsPause = 200 * time.Millisecond

	// A type that got no capacity is tried again when some is given back, but not before fullPause
	// is over. It is also tried again after fullLook, since the number of nodes may be another one;
	// so is a type with tasks that were going in line, if no wake-up came for them.
	fullPause = 2 * time.Millisecond
	fullLook  = time.Second
)

func (d *Dispatcher) leaseLoop(ctx context.Context) error {
	for {
		key, ok := d.agenda.Next(ctx)
		if !ok {
			return nil
		}
		d.leaseOnce(ctx, key)
	}
}

// leaseOnce leases tasks of one type and starts their attempts.
func (d *Dispatcher) leaseOnce(ctx context.Context, key store.TypeKey) {
	if until := d.locked.until(key.Tenant); d.store.Clock.Now().Before(until) {
		d.agenda.Put(key, until, until)
		return
	}
	t, r := d.reserve(ctx, key)
	n := r.n
	if n == 0 { // no other tasks come now to fill the open batches
		d.sendOpen(func(k store.TypeKey) bool { return k == key })
		return
	}
	blocked := d.blocked.has(key)
	leasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTime)
	leases, next, more, err := d.lease(leasing, t, n)
	cancel()
	r.use(len(leases), contextBytes(leases))
	now := d.store.Clock.Now()
	if !blocked {
		d.noteLeft(t, leases, now)
	}
	d.start(t, leases) // from here on they are its own
	switch {
	case store.IsHeld(err): // a table is locked, such as one that is being sealed
		next = now.Add(lockedPause)
		d.locked.set(key.Tenant, next)
	case err != nil:
		d.log.Warn("lease failed, trying again", "tenant", key.Tenant, "type", key.Type, "error",
			err)
		next = now.Add(failurePause)
	case len(leases) < n && !more && !next.IsZero() && !next.After(now):
		next = now.Add(contendedPause)
	case next.IsZero() && d.cfg.Poll > 0:
		next = now.Add(d.pollPause())
	case len(leases) < n && !more:
		d.agenda.Drained(key)
	}
	d.agenda.Put(key, next, now.Add(leasePause(t)))
	d.ledger.Serve() // the line may be empty now
}

// leasePause returns the time between two leases of a type. If all its tasks are claimed, only few
// of them are in line for a lease, but every one is announced.
func leasePause(t *store.Type) time.Duration {
	if _, all := t.HasClaims(); all {
		return max(t.ScheduleInterval.Std(), claimsPause)
	}
	return t.ScheduleInterval.Std()
}

// lockedTenants says until when no type of a tenant is leased from because one of its tables was
// locked: each lease that must wait for a lock keeps a leaser from all other types.
type lockedTenants struct {
	mu      sync.Mutex
	tenants map[string]time.Time
}

func (l *lockedTenants) set(tenant string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tenants[tenant] = until
}

// until returns the zero time if the tenant's tables aren't known to be locked.
func (l *lockedTenants) until(tenant string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tenants[tenant]
}

// forget drops the tenants without a table that was locked lately.
func (l *lockedTenants) forget(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.tenants, func(_ string, until time.Time) bool { return until.Before(now) })
}

func contextBytes(leases []asyncflow.Lease) (sum int) {
	for i := range leases {
		sum += leases[i].Size()
	}
	return sum
}

// lease leases up to n tasks of a type within its limits. Their capacity was taken before. more
// reports whether the lease moved blocked tasks out of the way, so that another may find more.
func (d *Dispatcher) lease(
	ctx context.Context, t *store.Type, n int,
) (leases []asyncflow.Lease, next time.Time, more bool, err error) {
	now := d.store.Clock.Now()
	most := d.ledger.ForAnyEndpoint(t.Key(), d.limits(t, now).Endpoints, n)
	if !d.blocked.has(t.Key()) && !t.Limited(now) && most > 0 {
		leases, next, err = d.store.Lease(ctx, t, min(n, most))
		return leases, next, false, err
	}
	return d.leaseLimited(ctx, t, n, now)
}
