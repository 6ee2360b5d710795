package dispatcher

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// acceptedWait is how long a 202 stays unwritten. A report within that time makes the write
	// unnecessary. If the node dies meanwhile, the attempt is lost once the timeout of its stage
	// is over, unless the report comes before.
	acceptedWait = 5 * time.Second
	// acceptedMargin is what must be left of a lease after that: time to write it.
	acceptedMargin = 2 * time.Second
	// acceptedTick is how long leases wait to be extended together with others.
	acceptedTick = 50 * time.Millisecond
	// acceptedMost bounds the leases that are remembered; each takes half a kilobyte.
	acceptedMost = 1 << 15
)

// accepted keeps the latest leases of deliveries that workers answered with 202 on this node, until
// reports end them. Reports for these need no read of the database, and no extension if they come
// soon.
type accepted struct {
	c    *Committer
	wait time.Duration

	mu     sync.Mutex
	leases *simplelru.LRU[leaseKey, *acceptedLease] // in the order in which they came
	due    []acceptedDue                            // in the same order; reported ones stay in it
}

// leaseKey names one lease of a task.
type leaseKey struct {
	store.TypeKey
	id  int64
	seq int
}

func leaseKeyOf(tenant string, id asyncflow.TaskID, seq int) leaseKey {
	return leaseKey{store.TypeKey{Tenant: tenant, Type: id.Type}, id.Number, seq}
}

type acceptedLease struct {
	asyncflow.Lease
	seen     store.Seen
	deadline time.Time
	written  func(error)
	pending  bool // its extension isn't queued yet
}

// extension returns the write that moves the lease's end to the deadline, unless another write
// moved it.
func (a *acceptedLease) extension(key store.TypeKey) *write {
	return &write{key: key, extend: &extension{
		Extension: store.Extension{ID: a.ID, Seq: a.Seq, Until: a.deadline, Had: &a.Until,
			Seen: a.seen, Sooner: a.sooner()},
		done: func(_ bool, err error) { a.written(err) },
	}}
}

// sooner reports whether the 202 makes the lease end sooner: the stage allows less time for
// processing than for the delivery.
func (a *acceptedLease) sooner() bool { return a.deadline.Before(a.Until) }

// acceptedDue says when a lease is to be extended.
type acceptedDue struct {
	key leaseKey
	at  time.Time
}

func newAccepted(c *Committer) *accepted {
	leases, err := simplelru.NewLRU[leaseKey, *acceptedLease](acceptedMost, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &accepted{c: c, wait: acceptedWait, leases: leases}
}

// Accept records that the delivery of a lease was answered with 202: the lease is extended until
// deadline, unless a report or a heartbeat comes within acceptedWait. If the lease ends sooner by
// that, the change is written at once: no other node may assume the later end. When the extension
// is written, Accept calls written with the result. Without an extension, nobody sees what was seen
// of the attempt until its end.
func (c *Committer) Accept(
	tenant string, l asyncflow.Lease, deadline time.Time, seen store.Seen, written func(error),
) {
	l = l.WithoutDocuments()
	key := leaseKeyOf(tenant, l.ID, l.Seq)
	now := c.store.Clock.Now()
	a := c.accepted
	lease := &acceptedLease{l, seen, deadline, written, true}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leases.Len() == acceptedMost {
		oldest, _, _ := a.leases.GetOldest()
		a.extend(oldest)
		a.leases.Remove(oldest)
	}
	a.leases.Add(key, lease)
	if lease.sooner() || l.Until.Sub(now) < a.wait+acceptedMargin {
		a.extend(key)
		return
	}
	a.due = append(a.due, acceptedDue{key, time.Now().Add(a.wait)})
	if len(a.due) == 1 {
		time.AfterFunc(a.wait, a.extendDue)
	}
}

// Accepted returns the lease of an attempt that was answered with 202, as far as this node knows:
// the lease may be over by now.
func (c *Committer) Accepted(
	tenant string, id asyncflow.TaskID, seq int,
) (l asyncflow.Lease, ok bool) {
	a := c.accepted
	a.mu.Lock()
	defer a.mu.Unlock()
	if lease, ok := a.leases.Peek(leaseKeyOf(tenant, id, seq)); ok {
		return lease.Lease, true
	}
	return l, false
}

// extendDue extends the leases that are due.
func (a *accepted) extendDue() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for len(a.due) > 0 && !a.due[0].at.After(now) {
		a.extend(a.due[0].key)
		a.due = a.due[1:]
	}
	if len(a.due) > 0 {
		time.AfterFunc(max(a.due[0].at.Sub(now), acceptedTick), a.extendDue)
	}
}

// extend queues the extension of a pending lease. The caller holds a.mu.
func (a *accepted) extend(key leaseKey) {
	if lease, ok := a.leases.Peek(key); ok && lease.pending {
		lease.pending = false
		a.c.add(key.TypeKey, lease.extension(key.TypeKey))
	}
}

// extendAll extends all pending leases now.
func (a *accepted) extendAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range a.leases.Keys() {
		a.extend(key)
	}
}

// extended records that a newer extension of a lease is about to be queued. It returns what was
// seen of the attempt and isn't written yet.
func (a *accepted) extended(key leaseKey) (seen store.Seen) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if lease, ok := a.leases.Peek(key); ok && lease.pending {
		lease.pending = false
		return lease.seen
	}
	return seen
}

// forget drops a lease that is about to end, and returns it if it was still pending.
func (a *accepted) forget(key leaseKey) *acceptedLease {
	a.mu.Lock()
	defer a.mu.Unlock()
	lease, _ := a.leases.Peek(key)
	a.leases.Remove(key)
	if lease == nil || !lease.pending {
		return nil
	}
	return lease
}
