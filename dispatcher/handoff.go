package dispatcher

import (
	"math"
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

// reserve counts slots that were taken as tasks of a type that are held. d.door.mu is held.
func (d *Dispatcher) reserve(t *store.Type, n int) {
	d.attempts.Add(n)
	d.held.add(t.Key(), n)
	d.load.expect(t.Key(), n)
	d.charge(t.Tenant, n)
}

// unreserve gives room back that was reserved for tasks which did not come.
func (d *Dispatcher) unreserve(t *store.Type, n int) {
	d.charge(t.Tenant, -n)
	d.held.add(t.Key(), -n)
	d.load.expect(t.Key(), -n)
	d.slots.give(n)
	d.attempts.Add(-n)
}

const (
	// handoffLook is how often new tasks that wait for slots look for them.
	handoffLook = time.Millisecond
	// handoffWaits bounds the batches that do so at a time: leasers look in the same place.
	handoffWaits = 4
	// handoffTime is how long attempts of a type may take on average for them to wait.
	handoffTime = 100 * time.Millisecond
)

// Reserve keeps slots for the first of n new tasks of a type that are due. There are none
// when others may be due before them, or when more than slots must be asked for: which
// endpoint may have them, which flow keys are free. Slots that will be free soon are waited
// for, until a time.
func (d *Dispatcher) Reserve(t *store.Type, n int, until time.Time) (room int) {
	d.waitForSlots(until, func(until time.Time) (wait bool) {
		room, wait = d.tryReserve(t, n, until)
		return wait
	})
	return room
}

// Await is Reserve for as many new tasks as due says each time, but reserves nothing.
func (d *Dispatcher) Await(t *store.Type, due func() int, until time.Time) {
	d.waitForSlots(until, func(until time.Time) bool {
		d.door.mu.Lock()
		defer d.door.mu.Unlock()
		if !d.handsOff(t) {
			return false
		}
		_, wait := d.handoffRoom(t, due(), until)
		return wait
	})
}

// waitForSlots looks for slots until none have to be waited for.
func (d *Dispatcher) waitForSlots(until time.Time, look func(until time.Time) (wait bool)) {
	if !look(until) {
		return
	}
	defer d.waiting.Add(-1)
	if d.waiting.Add(1) > handoffWaits {
		until = time.Time{}
	}
	for look(until) {
		time.Sleep(handoffLook)
	}
}

// tryReserve is Reserve, unless it is worth while to wait.
func (d *Dispatcher) tryReserve(t *store.Type, n int, until time.Time) (room int, wait bool) {
	d.door.mu.Lock()
	defer d.door.mu.Unlock()
	if !d.handsOff(t) {
		return 0, false
	}
	if room, wait = d.handoffRoom(t, n, until); wait {
		return 0, true
	}
	if room, _ = d.slots.tryTake(room, 0); room < n { // the others of the batch are before whatever comes next
		d.agenda.filling(t.Key())
	}
	d.reserve(t, room)
	return room, false
}

// handoffRoom returns for how many of n new tasks there is room, and whether it is worth
// while to wait for more, until a time. d.door.mu is held.
func (d *Dispatcher) handoffRoom(t *store.Type, n int, until time.Time) (room int, wait bool) {
	now := d.store.Clock.Now()
	room, _ = d.roomOf(t, now, 0)
	free := d.slots.rest()
	room = max(0, min(room, d.endpointRoom(t, free, 0)))
	free = min(room, free)
	ofType, _ := d.held.count(t.Key())
	crowded := n > 0 && n < free && ofType >= d.waitFrom() // a larger batch wouldn't have room
	return min(n, room), (free < n || crowded) && now.Before(until) && d.lacksSlots(t, n, now)
}

// waitFrom is from how many tasks of a type under way on new ones wait, though there are
// slots: where other nodes have some, too. The fewer are under way, the less each costs.
func (d *Dispatcher) waitFrom() int {
	if d.store.Dispatchers() > 1 {
		return max(1, d.cfg.Concurrency/4)
	}
	return math.MaxInt
}

// lacksSlots tells whether there will be room for n tasks of a type soon, once those that it
// has under way have ended.
func (d *Dispatcher) lacksSlots(t *store.Type, n int, now time.Time) bool {
	ofType, ofTenant := d.held.count(t.Key())
	free := d.slots.rest() + ofType
	most, _ := d.tenantRoom(t.Tenant, now)
	most = min(most, typeRoom(0, ofTenant-ofType, free), d.load.roomLater(t.Key()))
	if t.ServesSeveral() {
		most = min(most, slotRoom(endpointShare, 0, free))
	}
	return most >= n && t.Room(d.cfg.Concurrency, now) == d.cfg.Concurrency && d.held.takes(t.Key()) <= handoffTime
}

// handsOff tells whether new tasks of a type need not wait in line. Without news from other
// nodes it isn't known whether somebody does. d.door.mu is held.
func (d *Dispatcher) handsOff(t *store.Type) bool {
	return d.door.isOpen && d.stopping.Err() == nil && d.store.Listening() && !d.holding.has(t.Key()) && !t.Guarded(d.store.Clock.Now()) &&
		t.ScheduleInterval == 0 && t.Serves(t.Stages[0].Name) && d.agenda.idle(t.Key())
}

// Receive begins the attempts of tasks that were leased with their rows, and gives back
// what was reserved for others.
func (d *Dispatcher) Receive(t *store.Type, reserved int, leases []asyncflow.Lease) {
	d.unreserve(t, reserved-len(leases))
	d.start(t, leases)
}
