package dispatcher

import (
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// door is where room for tasks is reserved: by leasers, and, while it is open, for new tasks.
type door struct {
	mu     sync.Mutex // one reservation at a time: none sees room that another one takes
	isOpen bool
}

// set opens or shuts the door to new tasks. Room that was reserved before counts as attempts.
func (o *door) set(isOpen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = isOpen
}

// reserve counts slots that were taken as tasks of a type that are held, and whose contexts
// are to come. d.door.mu is held.
func (d *Dispatcher) reserve(t *store.Type, n int) {
	d.occupy(t, n)
	d.load.expect(t.Key(), n)
}

// unreserve gives room back that was reserved for tasks which did not come.
func (d *Dispatcher) unreserve(t *store.Type, n int) {
	d.load.expect(t.Key(), -n)
	d.vacate(t, n)
}

// occupy counts slots that were taken as tasks of a type that are held. d.door.mu is held.
func (d *Dispatcher) occupy(t *store.Type, n int) {
	d.attempts.Add(n)
	d.held.add(t.Key(), n)
	d.underway.add(t.Key(), n)
	d.charge(t.Tenant, n)
}

// vacate gives slots back that were taken for tasks which did not come.
func (d *Dispatcher) vacate(t *store.Type, n int) {
	d.charge(t.Tenant, -n)
	d.held.add(t.Key(), -n)
	d.underway.add(t.Key(), -n)
	d.slots.give(n)
	d.attempts.Add(-n)
}

const (
	// handoffLook is how often new tasks that wait to be handed over look whether they can be.
	handoffLook = time.Millisecond
	// handoffWaits bounds the batches that do so at a time: leasers look in the same place.
	handoffWaits = 4
	// handoffTime is how long new tasks wait for slots, and for the end of a line that has
	// just begun: those that go in line cost up to a third more. It is how long attempts of a
	// type may take on average for that, too.
	handoffTime = 100 * time.Millisecond
	// congestedTime is how long they wait, though there are slots, for deliveries that are in
	// each other's way, where other nodes may be in it, too; twice that is how long deliveries
	// of a type may take on average for that.
	congestedTime = 25 * time.Millisecond
	// congestedShare of a node's slots, but not less than congestedLeast, may be taken by
	// deliveries that are in each other's way.
	congestedShare, congestedLeast = 32, 8
)

// Reserve keeps slots for the first of n new tasks of a type that are due. There are none
// when others may be due before them, or when more than slots must be asked for: which
// endpoint may have them, which flow keys are free. What will be over soon is waited for, but
// not long after a time: that at which the first of them came.
func (d *Dispatcher) Reserve(t *store.Type, n int, since time.Time) (room int) {
	d.waitFor(func(patient bool) (wait bool) {
		room, wait = d.tryReserve(t, n, since, patient)
		return wait
	})
	return room
}

// Await is Reserve for as many new tasks as due says each time, but reserves nothing.
func (d *Dispatcher) Await(t *store.Type, due func() int, since time.Time) {
	d.waitFor(func(patient bool) bool {
		d.door.mu.Lock()
		defer d.door.mu.Unlock()
		_, wait := d.handoffRoom(t, due(), since)
		return wait && patient
	})
}

// waitFor looks until nothing has to be waited for, but for handoffTime at most, whatever
// becomes of the database's clock. Where others wait already it has no patience.
func (d *Dispatcher) waitFor(look func(patient bool) (wait bool)) {
	if !look(true) {
		return
	}
	defer d.waiting.Add(-1)
	patient := d.waiting.Add(1) <= handoffWaits
	for began := time.Now(); look(patient && time.Since(began) < handoffTime); {
		time.Sleep(handoffLook)
	}
}

// tryReserve is Reserve, unless it is worth while to wait.
func (d *Dispatcher) tryReserve(t *store.Type, n int, since time.Time, patient bool) (room int, wait bool) {
	d.door.mu.Lock()
	defer d.door.mu.Unlock()
	t = d.current(t) // it may have been paused while the batch waited
	if room, wait = d.handoffRoom(t, n, since); wait && patient {
		return 0, true
	}
	if room, _ = d.slots.tryTake(room, 0); room < n { // the others of the batch are before whatever comes next
		d.agenda.filling(t.Key())
	}
	d.reserve(t, room)
	return room, false
}

// Keep keeps the slots of n tasks of a type that have ended a stage for the next one: no more
// than they would get again if they gave them back. They do so a moment later. What they go
// on with is counted until then.
func (d *Dispatcher) Keep(t *store.Type, n int) int {
	d.door.mu.Lock()
	defer d.door.mu.Unlock()
	t = d.current(t)
	room := d.keepRoom(t, n)
	if room < n { // the others of the batch are before whatever comes next
		d.agenda.filling(t.Key())
	}
	d.slots.takeAhead(room)
	d.occupy(t, room)
	return room
}

// keepRoom returns how many of n tasks that have ended a stage keep their slots. d.door.mu is
// held.
func (d *Dispatcher) keepRoom(t *store.Type, n int) int {
	if idle, _ := d.agenda.idle(t.Key()); !idle || !d.handsOff(t) {
		return 0
	}
	room, _ := d.roomOf(t, d.store.Clock.Now(), 0, n)
	return max(0, min(n, room, d.endpointRoom(t, d.slots.rest()+n, n)))
}

// handoffRoom returns for how many of n new tasks there is room, and whether it is worth
// while to wait for more. d.door.mu is held.
func (d *Dispatcher) handoffRoom(t *store.Type, n int, since time.Time) (room int, wait bool) {
	if n == 0 || !d.handsOff(t) || !t.Serves(t.Stages[0].Name) {
		return 0, false
	}
	now := d.store.Clock.Now()
	waited := now.Sub(since)
	if idle, busy := d.agenda.idle(t.Key()); !idle {
		return 0, waited < handoffTime && busy < handoffTime && d.isActive(t, now) && d.soonRoom(t, 1, now)
	}
	room, _ = d.roomOf(t, now, 0, 0)
	free := d.slots.rest()
	room = max(0, min(room, free, d.endpointRoom(t, free, 0)))
	if room < n {
		return room, waited < handoffTime && d.soonRoom(t, n, now)
	}
	// A batch that grows stops where it would lack room.
	return n, n < room && waited < congestedTime && d.isCongested(t) && d.soonRoom(t, n, now)
}

// isActive tells whether there is much to do for a type: else the line is as quick.
func (d *Dispatcher) isActive(t *store.Type, now time.Time) bool {
	return d.crowd.of(t) > 0 || d.held.lastQuick(t.Key(), now) < handoffTime
}

// isCongested tells whether too many deliveries of a type are in each other's way. To one
// node alone they do no harm: it always has something to do.
func (d *Dispatcher) isCongested(t *store.Type) bool {
	return d.store.Dispatchers() > 1 && d.held.takes(t.Key()) <= 2*congestedTime &&
		d.held.queued(t.Key(), d.crowd.of(t)) >= max(congestedLeast, d.cfg.Concurrency/congestedShare)
}

// soonRoom tells whether there will be room for n tasks of a type soon, once those that it
// has under way have ended.
func (d *Dispatcher) soonRoom(t *store.Type, n int, now time.Time) bool {
	ofType, ofTenant := d.held.count(t.Key())
	free := d.slots.rest() + ofType
	most, _ := d.tenantRoom(t.Tenant, now)
	most = min(most, typeRoom(0, ofTenant-ofType, free), d.load.roomLater(t.Key()))
	if t.ServesSeveral() {
		most = min(most, slotRoom(endpointShare, 0, free))
	}
	return most >= n && t.Room(d.cfg.Concurrency, now) == d.cfg.Concurrency && d.held.takes(t.Key()) <= handoffTime
}

// handsOff tells whether tasks of a type need not wait in line, unless somebody does.
// Without news from other nodes that isn't known. d.door.mu is held.
func (d *Dispatcher) handsOff(t *store.Type) bool {
	return d.door.isOpen && d.stopping.Err() == nil && d.store.Listening() && !d.holding.has(t.Key()) && !d.standsInLine(t)
}

// standsInLine tells whether tasks of a type always wait in line: more than slots must be
// asked for, or leases are some time apart.
func (d *Dispatcher) standsInLine(t *store.Type) bool {
	return t.Guarded(d.store.Clock.Now()) || t.ScheduleInterval != 0
}

// MayLinger tells whether so many attempts that have ended may keep their slots until more
// have: some are under way, and plenty of slots are free.
func (d *Dispatcher) MayLinger(ended int) bool {
	free := d.slots.rest()
	return free >= d.cfg.Concurrency/4 && d.cfg.Concurrency-free > ended
}

// Receive begins the attempts of tasks that were leased with their rows, and gives back
// what was reserved for others.
func (d *Dispatcher) Receive(t *store.Type, reserved int, leases []asyncflow.Lease) {
	d.unreserve(t, reserved-len(leases))
	d.start(t, leases)
}

// Resume begins the attempts of tasks that were leased for their next stage, and gives back
// what was kept for others.
func (d *Dispatcher) Resume(t *store.Type, kept int, leases []asyncflow.Lease) {
	d.vacate(t, kept-len(leases))
	d.load.expect(t.Key(), len(leases))
	d.start(t, leases)
}
