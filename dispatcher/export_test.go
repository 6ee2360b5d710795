package dispatcher

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/ledger"
	"github.com/asyncflow/asyncflow/store"
)

// AskLimits runs all the checks for limits of a type, tenant or endpoint that a task's lease,
// delivery and end make. It reports whether the lease must be a limited one.
func (d *Dispatcher) AskLimits(t *store.Type) (limited bool) {
	now, key := d.store.Clock.Now(), t.Key()
	charged, _ := d.charge(t.Tenant, 1, now)
	a := d.ask(t, charged, now)
	r := d.reservation(key, charged, d.ledger.Await(d.sending, a, 0), false)
	n := r.n
	limited = n == 0 || d.ledger.ForAnyEndpoint(key, a.Endpoints, n) == 0 || d.blocked.has(key) ||
		t.Limited(now)
	r.use(n, 1)
	d.ledger.Begun(key, n)
	d.ledger.Took(key, 0, now)
	d.ledger.Release(key, n, n)
	d.refund(t.Tenant, n)
	return limited
}

// Reserve takes capacity for n tasks of a type, whether or not there is any; or n tasks in flight
// keep theirs.
func (d *Dispatcher) Reserve(t *store.Type, n int, kept bool) reservation {
	if kept {
		n = d.ledger.Keep(d.ask(t, n, d.store.Clock.Now()))
	} else {
		d.ledger.Occupy(t.Key(), n)
	}
	return d.reservation(t.Key(), n, n, kept)
}

// Len returns for how many tasks a reservation holds capacity.
func (r *reservation) Len() int { return r.n }

// Use is use.
func (r *reservation) Use(n, bytes int) { r.use(n, bytes) }

// Cancel is cancel.
func (r *reservation) Cancel() { r.cancel() }

// Forgo is forgo.
func (d *Dispatcher) Forgo(t *store.Type, n, bytes int) { d.forgo(t, n, bytes) }

// JudgeSpawn is judgeSpawn.
func (d *Dispatcher) JudgeSpawn(
	t *store.Type, l asyncflow.Lease, o asyncflow.Outcome, until time.Time,
) asyncflow.Outcome {
	return d.judgeSpawn(t, l, o, until)
}

// Load returns the counted bytes of contexts in flight and of outputs.
func (d *Dispatcher) Load() int { return d.ledger.Counts().Bytes }

// Waiting returns how many submits wait for capacity.
func (d *Dispatcher) Waiting() int { return d.ledger.Counts().Waiting }

// Leasing returns how many tasks of a type are in flight with a lease that isn't committed yet.
func (d *Dispatcher) Leasing(key store.TypeKey) int { return d.ledger.Leasing(key) }

// Gathered returns how many tasks wait to be sent together with others.
func (d *Dispatcher) Gathered() (n int) {
	d.batches.mu.Lock()
	defer d.batches.mu.Unlock()
	for _, b := range d.batches.open {
		n += len(b.leases)
	}
	return n
}

// IsIdle reports whether no task of a type stands in line, as far as the node knows.
func (d *Dispatcher) IsIdle(key store.TypeKey) bool {
	idle, _ := d.idle(key)
	return idle
}

// ForgetDurations makes the node forget how long deliveries of a type took.
func (d *Dispatcher) ForgetDurations(key store.TypeKey) { d.ledger.ForgetDurations(key) }

// LimitsOf returns the bounds on the tasks of a type in flight besides the node's capacity.
func (d *Dispatcher) LimitsOf(t *store.Type) ledger.Limits {
	return d.limits(t, d.store.Clock.Now())
}

// Failing returns the number of endpoints that failed lately, as far as is known.
func (d *Dispatcher) Failing() int {
	d.breakers.mu.Lock()
	defer d.breakers.mu.Unlock()
	return len(d.breakers.runs)
}

// Tidy drops what the node keeps for types that are gone or idle.
func (d *Dispatcher) Tidy() { d.tidy() }

// KeptTypes returns the number of types that the node remembers something about.
func (d *Dispatcher) KeptTypes() int {
	d.blocked.mu.RLock()
	defer d.blocked.mu.RUnlock()
	return max(d.agenda.Len(), d.ledger.Counts().Types, len(d.blocked.types))
}

// TakeClaimSlots takes all slots of transactions for claims until free is called.
func (c *Committer) TakeClaimSlots() (free func()) {
	for range claimTransactions {
		c.claims.slots.Acquire("test", true)
	}
	return func() {
		for range claimTransactions {
			c.claims.slots.Release(true)
		}
	}
}

// OwnPart is ownPart.
func (d *Dispatcher) OwnPart(n int) int { return d.ownPart(n, d.store.Clock.Now()) }

// FoundLeft reports whether the node ever found tasks that others had not taken.
func (d *Dispatcher) FoundLeft() bool {
	d.others.mu.Lock()
	defer d.others.mu.Unlock()
	return !d.others.keeping.IsZero()
}

// WasLeft is wasLeft.
func WasLeft(l asyncflow.Lease, now time.Time) bool { return wasLeft(l, now) }
