package store

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/asyncflow/asyncflow"
)

const (
	// acceptedWait is how long it isn't written down that a delivery was answered with
	// 202. A report that comes within that time spares the database the change. If the
	// node dies meanwhile, the attempt is lost once the timeout of its stage is over,
	// unless the report comes before.
	acceptedWait = 5 * time.Second
	// acceptedMargin is what a lease must have left after that: time to write it.
	acceptedMargin = 2 * time.Second
	// acceptedTick lets leases wait for others to be extended with them.
	acceptedTick = 50 * time.Millisecond
	// acceptedMost bounds the leases that are remembered; each takes half a kilobyte.
	acceptedMost = 1 << 15
)

// accepted are the last leases whose deliveries were answered with 202 by this node's
// workers, until reports end them: reports for these need no look at the database, and no
// extension, if they come soon.
type accepted struct {
	wait time.Duration

	mu     sync.Mutex
	leases *simplelru.LRU[acceptedKey, *acceptedLease] // in the order in which they came
	due    []acceptedDue                               // in that order, too; reported ones stay in it
}

type acceptedKey struct {
	TypeKey
	leaseKey
}

func acceptedKeyOf(tenant string, id asyncflow.TaskID, seq int) acceptedKey {
	return acceptedKey{TypeKey{tenant, id.Type}, leaseKey{id.Number, int16(seq)}}
}

type acceptedLease struct {
	asyncflow.Lease
	deadline time.Time
	written  func(error)
	pending  bool // it is still to be extended
}

func (a *acceptedLease) extension() extendItem {
	return extendItem{a.ID.Number, a.Seq, a.deadline, &a.Until, a.sooner(), func(_ bool, err error) { a.written(err) }}
}

// sooner reports whether the lease ends sooner by the 202: the stage has less time for
// processing than for the delivery.
func (a *acceptedLease) sooner() bool { return a.deadline.Before(a.Until) }

// acceptedDue says when a lease is to be extended.
type acceptedDue struct {
	key acceptedKey
	at  time.Time
}

func newAccepted() *accepted {
	leases, err := simplelru.NewLRU[acceptedKey, *acceptedLease](acceptedMost, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &accepted{wait: acceptedWait, leases: leases}
}

// Accept takes in that the delivery of a lease was answered with 202: the lease is
// extended until deadline, unless a report or a heartbeat comes within some seconds. One that
// ends sooner by that is written at once: nobody may take it to stand for longer. Whenever it
// is written, written is called with how that went.
func (s *Store) Accept(tenant string, l asyncflow.Lease, deadline time.Time, written func(error)) {
	l.Context = nil // it would stay in memory
	key := acceptedKeyOf(tenant, l.ID, l.Seq)
	a := &acceptedLease{l, deadline, written, true}
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	if s.accepted.leases.Len() == acceptedMost {
		oldest, _, _ := s.accepted.leases.GetOldest()
		s.extendAccepted(oldest)
		s.accepted.leases.Remove(oldest)
	}
	s.accepted.leases.Add(key, a)
	if a.sooner() || l.Until.Sub(s.Clock.Now()) < s.accepted.wait+acceptedMargin {
		s.extendAccepted(key)
		return
	}
	if s.accepted.due = append(s.accepted.due, acceptedDue{key, time.Now().Add(s.accepted.wait)}); len(s.accepted.due) == 1 {
		time.AfterFunc(s.accepted.wait, s.extendDue)
	}
}

// Accepted returns the lease of an attempt whose delivery was answered with 202, as far as
// this node knows: it need not stand any more.
func (s *Store) Accepted(tenant string, id asyncflow.TaskID, seq int) (l asyncflow.Lease, ok bool) {
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	if a, ok := s.accepted.leases.Peek(acceptedKeyOf(tenant, id, seq)); ok {
		return a.Lease, true
	}
	return l, false
}

// extendDue has those extended whose time has come.
func (s *Store) extendDue() {
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	now := time.Now()
	for len(s.accepted.due) > 0 && !s.accepted.due[0].at.After(now) {
		s.extendAccepted(s.accepted.due[0].key)
		s.accepted.due = s.accepted.due[1:]
	}
	if len(s.accepted.due) > 0 {
		time.AfterFunc(max(s.accepted.due[0].at.Sub(now), acceptedTick), s.extendDue)
	}
}

// extendAccepted has a lease extended, if nothing else has become of it. The lock is held.
func (s *Store) extendAccepted(key acceptedKey) {
	if a, ok := s.accepted.leases.Peek(key); ok && a.pending {
		a.pending = false
		s.extends.add(key.TypeKey, a.extension())
	}
}

// extendAllAccepted has all of them extended now.
func (s *Store) extendAllAccepted() {
	s.accepted.mu.Lock()
	defer s.accepted.mu.Unlock()
	for _, key := range s.accepted.leases.Keys() {
		s.extendAccepted(key)
	}
}

// extended says that a newer extension of a lease is on its way.
func (a *accepted) extended(key acceptedKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found, ok := a.leases.Peek(key); ok {
		found.pending = false
	}
}

// forget drops a lease whose end is on its way, and returns it if it was still to be
// extended.
func (a *accepted) forget(key acceptedKey) *acceptedLease {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, _ := a.leases.Peek(key)
	a.leases.Remove(key)
	if found == nil || !found.pending {
		return nil
	}
	return found
}
