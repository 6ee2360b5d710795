package dispatcher

import (
	"sync"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// door is open to new tasks while the dispatcher runs.
type door struct {
	mu     sync.Mutex // one reservation at a time: none sees room that another one takes
	isOpen bool
}

// set opens or shuts the door. Reservations that were made before count as attempts.
func (o *door) set(isOpen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = isOpen
}

// Reserve keeps slots for the first of n new tasks of a type that are due. There are none
// when others may be due before them, or when more than slots must be asked for: which
// endpoint may have them, which flow keys are free.
func (d *Dispatcher) Reserve(t *store.Type, n int) int {
	d.door.mu.Lock()
	defer d.door.mu.Unlock()
	if !d.door.isOpen || d.stopping.Err() != nil || !d.handsOff(t) {
		return 0
	}
	room, _ := d.roomOf(t, d.store.Clock.Now(), 0)
	room, _ = d.slots.tryTake(max(0, min(n, room, d.endpointRoom(t, d.slots.rest()))), 0)
	if room < n { // the others of the batch are before whatever comes next
		d.agenda.filling(t.Key())
	}
	d.attempts.Add(room)
	d.held.add(t.Key(), room)
	return room
}

// handsOff tells whether new tasks of a type need not wait in line. Without news from other
// nodes it isn't known whether somebody does.
func (d *Dispatcher) handsOff(t *store.Type) bool {
	_, held := d.holding.Load(t.Key())
	return d.store.Notified() && !held && !t.Guarded(d.store.Clock.Now()) &&
		t.ScheduleInterval == 0 && t.Serves(t.Stages[0].Name) && d.agenda.idle(t.Key())
}

// Receive begins the attempts of tasks that were leased with their rows, and gives back
// what was reserved for others.
func (d *Dispatcher) Receive(t *store.Type, reserved int, leases []asyncflow.Lease) {
	d.start(t, leases)
	d.slots.give(reserved - len(leases))
	d.held.add(t.Key(), -reserved)
	d.attempts.Add(-reserved)
}
