package dispatcher

import "github.com/asyncflow/asyncflow/store"

// AskLimits asks all that a lease of a task, its delivery and its end ask because somebody
// may have limits, and tells whether the lease is to be a guarded one.
func (d *Dispatcher) AskLimits(t *store.Type) (guarded bool) {
	now := d.store.Clock.Now()
	room, _ := d.roomOf(t, now, 0, 0)
	guarded = room == 0 || d.endpointRoom(t, d.slots.rest(), 0) == 0 || d.holding.has(t.Key()) || t.Guarded(now)
	d.charge(t.Tenant, 1)
	d.held.ended(t.Key(), 0, now)
	d.charge(t.Tenant, -1)
	return guarded
}

// Load returns the bytes that are counted of contexts under way, and of outputs.
func (d *Dispatcher) Load() int {
	d.load.mu.Lock()
	defer d.load.mu.Unlock()
	return d.load.bytes
}

// SoonRoom tells whether n new tasks of a type may wait for room.
func (d *Dispatcher) SoonRoom(t *store.Type, n int) bool {
	return d.soonRoom(t, n, d.store.Clock.Now())
}

// Waiting returns how many batches of new tasks wait to be handed over.
func (d *Dispatcher) Waiting() int { return int(d.waiting.Load()) }

// Quiescing returns how many calls wait for the leases under way of a type.
func (d *Dispatcher) Quiescing() int {
	d.underway.mu.Lock()
	defer d.underway.mu.Unlock()
	return d.underway.waiting
}

// Failing returns of how many endpoints it is known that they failed lately.
func (d *Dispatcher) Failing() int {
	d.patients.mu.Lock()
	defer d.patients.mu.Unlock()
	return len(d.patients.inRow)
}
