package dispatcher

import "github.com/asyncflow/asyncflow/store"

// AskLimits runs all the checks for limits of a type, tenant or endpoint that a task's lease,
// delivery and end make. It reports whether the lease must be a limited one.
func (d *Dispatcher) AskLimits(t *store.Type) (limited bool) {
	now, key := d.store.Clock.Now(), t.Key()
	charged, _ := d.charge(t.Tenant, 1, now)
	a := d.ask(t, charged, now)
	n := d.ledger.Reserve(a)
	limited = n == 0 || d.ledger.ForAnyEndpoint(key, a.Endpoints, n) == 0 || d.blocked.has(key) ||
		t.Limited(now)
	d.ledger.Arrived(key, n, 1)
	d.ledger.Begun(key, n)
	d.ledger.Took(key, 0, now)
	d.ledger.Release(key, n, n)
	d.refund(t.Tenant, charged)
	return limited
}

// Load returns the counted bytes of contexts in flight and of outputs.
func (d *Dispatcher) Load() int {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	return d.ledger.bytes
}

// Waiting returns how many submits wait for capacity.
func (d *Dispatcher) Waiting() (n int) {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	for _, queue := range d.ledger.waiting {
		for _, w := range queue {
			if w.ask.New {
				n++
			}
		}
	}
	return n
}

// Leasing returns how many tasks of a type are in flight whose leases aren't committed yet.
func (d *Dispatcher) Leasing(key store.TypeKey) int {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	if u := d.ledger.types[key]; u != nil {
		return u.leasing
	}
	return 0
}

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
	idle, _ := d.agenda.Idle(key)
	return idle
}

// ForgetDurations makes the node forget how long deliveries of a type took.
func (d *Dispatcher) ForgetDurations(key store.TypeKey) {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	d.ledger.usage(key).takes = 0
}

// LimitsOf returns the bounds on the tasks of a type in flight besides the node's capacity.
func (d *Dispatcher) LimitsOf(t *store.Type) Limits { return d.limits(t, d.store.Clock.Now()) }

// Failing returns the number of endpoints known to have failed lately.
func (d *Dispatcher) Failing() int {
	d.breakers.mu.Lock()
	defer d.breakers.mu.Unlock()
	return len(d.breakers.runs)
}

// Tidy drops what the node keeps for types that are gone or idle.
func (d *Dispatcher) Tidy() { d.tidy() }

// KeptTypes returns the number of types of which the node keeps something.
func (d *Dispatcher) KeptTypes() int {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	d.blocked.mu.RLock()
	defer d.blocked.mu.RUnlock()
	return max(d.agenda.Len(), len(d.ledger.types), d.ledger.quick.Len(),
		len(d.blocked.types))
}

// Reserve takes capacity for up to a.N tasks, and returns for how many.
func (l *Ledger) Reserve(a Ask) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.mostOnArrival(a)
	l.take(a, n)
	return n
}

// TakeClaimSlots takes all slots of transactions for claims until free is called.
func (c *Committer) TakeClaimSlots() (free func()) {
	for range claimTransactions {
		c.claims.slots.Take("test", true)
	}
	return func() {
		for range claimTransactions {
			c.claims.slots.Give()
		}
	}
}
