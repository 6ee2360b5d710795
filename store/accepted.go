package store

import (
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

// acceptedWait is how long it isn't written down that a delivery was answered with 202. The
// lease stands longer (LeaseMargin), and a report that comes within that time spares the
// database the change. If the node dies meanwhile, the attempt is lost with its lease,
// unless the report comes before.
const acceptedWait = time.Second

// accepted are the leases of deliveries that were answered with 202, until they are
// extended.
type accepted struct {
	mu     sync.Mutex
	leases map[acceptedKey]*acceptedLease
}

func newAccepted() *accepted { return &accepted{leases: map[acceptedKey]*acceptedLease{}} }

type acceptedKey struct {
	TypeKey
	leaseKey
}

func acceptedKeyOf(tenant string, id asyncflow.TaskID, seq int) acceptedKey {
	return acceptedKey{TypeKey{tenant, id.Type}, leaseKey{id.Number, int16(seq)}}
}

type acceptedLease struct {
	lease  asyncflow.Lease
	extend extendItem
	timer  *time.Timer
}

// Accept takes in that the delivery of a lease was answered with 202: the lease is
// extended until deadline, unless a report or a heartbeat comes within a second. If it is,
// written is called with how that went.
func (s *Store) Accept(tenant string, l asyncflow.Lease, deadline time.Time, written func(error)) {
	l.Context = nil // it would stay in memory
	key := acceptedKeyOf(tenant, l.ID, l.Seq)
	item := extendItem{l.ID.Number, l.Seq, deadline, &l.Until, func(_ bool, err error) { written(err) }}
	if l.Until.Sub(s.Clock.Now()) < 3*acceptedWait { // the node was held up
		s.extends.add(key.TypeKey, item)
		return
	}
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	timer := time.AfterFunc(acceptedWait, func() { s.extendAccepted(key) })
	s.accepted.leases[key] = &acceptedLease{l, item, timer}
}

// Accepted returns the lease of an attempt whose delivery was answered with 202 within the
// last second, as far as this node knows.
func (s *Store) Accepted(tenant string, id asyncflow.TaskID, seq int) (l asyncflow.Lease, ok bool) {
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	if a := s.accepted.leases[acceptedKeyOf(tenant, id, seq)]; a != nil {
		return a.lease, true
	}
	return l, false
}

// extendAccepted has a lease extended, if nothing else has become of it.
func (s *Store) extendAccepted(key acceptedKey) {
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	if a := s.accepted.leases[key]; a != nil {
		s.extends.add(key.TypeKey, a.extend)
		delete(s.accepted.leases, key)
	}
}

// extendAllAccepted has all of them extended now.
func (s *Store) extendAllAccepted() {
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	for key, a := range s.accepted.leases {
		a.timer.Stop()
		s.extends.add(key.TypeKey, a.extend)
	}
	clear(s.accepted.leases)
}

// forget drops a lease whose change is on its way, and returns it; nil if it isn't there.
func (a *accepted) forget(key acceptedKey) *acceptedLease {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.leases[key]
	if found != nil {
		found.timer.Stop()
		delete(a.leases, key)
	}
	return found
}
