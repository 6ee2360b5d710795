package ledger

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Ledger counts the tasks in flight on this node by type, tenant and endpoint, and decides how many
// more may be. A task is in flight from the moment that capacity is reserved for it until its
// outcome is settled, or its worker answers with 202. The ledger uses neither the database nor the
// clock.
//
// Await takes capacity for tasks, Keep passes it on to their next stages, and Release gives it
// back. Why returns the reason for which there is none. Between Await and Release the ledger hears
// of each step of the tasks: Begun, Arrived and Answered.
type Ledger struct {
	capacity  int // tasks
	mostBytes int // of their contexts and outputs
	// line reports whether no task of a type stands in line. If some may, busy is for how long.
	line func(store.TypeKey) (empty bool, busy time.Duration)
	// wake is called when capacity is given back, with the types that were refused.
	wake func(store.TypeKey)

	present atomic.Int64 // tasks in flight that have Arrived

	mu         sync.Mutex
	newAllowed bool // new tasks may begin at once
	free       int  // tasks that may still begin
	bytes      int  // of the tasks in flight
	expected   int  // bytes of the tasks that haven't Arrived yet
	slow       int  // tasks in flight of types that are not quick
	types      map[store.TypeKey]*usage
	quick      list.List      // the *usage of the types that are quick, by when each was so last
	tenants    map[string]int // tasks in flight; without zeros
	endpoints  map[string]int // deliveries under way; without zeros
	waiting    map[store.TypeKey][]*waiter
	refused    map[store.TypeKey]struct{} // types to wake
	// Closed when something ends; nil: nothing waits, see awaitQuiet.
	quiet chan struct{}
}

// Ask is a request for capacity.
type Ask struct {
	Type store.TypeKey
	N    int // tasks
	// Least is the fewest tasks that are worth a call: Await waits for that many.
	Least int
	Limits
	// New is set for new tasks. They don't overtake tasks of their type that stand in line.
	New bool
	Now time.Time
}

// Limits are further bounds on the tasks in flight on this node.
type Limits struct {
	Type   int // tasks of the type
	Tenant int // tasks of the tenant
	// Endpoints are the type's endpoints that get tasks, if there are several: none may take more
	// than its share.
	Endpoints []string
}

// New returns the ledger of a node with a capacity in tasks and a byte budget.
func New(
	capacity, bytes int, line func(store.TypeKey) (bool, time.Duration), wake func(store.TypeKey),
) *Ledger {
	return &Ledger{capacity: capacity, free: capacity, mostBytes: bytes, line: line, wake: wake,
		types: map[store.TypeKey]*usage{}, tenants: map[string]int{}, endpoints: map[string]int{},
		waiting: map[store.TypeKey][]*waiter{}, refused: map[store.TypeKey]struct{}{}}
}

// Keep takes the capacity of n tasks at the end of a stage for their next one. a.Endpoints are the
// endpoints of the next stage. Keep returns for how many: for no more than they would get if they
// had given it back. They must not give it back.
func (l *Ledger) Keep(a Ask) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usage(a.Type)
	l.count(a.Type, u, -a.N) // as if they had released it
	endpoints := a.Endpoints
	a.Endpoints = nil
	n, _ := l.most(a)
	for _, e := range endpoints {
		n = min(n, max(0, shareRest(endpointShare, l.endpoints[e], l.free)))
	}
	l.count(a.Type, u, a.N)
	u.leasing += n
	return n
}

// Begun records that the leases of n tasks are committed, or will never be.
func (l *Ledger) Begun(key store.TypeKey, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == 0 {
		return
	}
	u := l.usage(key)
	if u.leasing -= n; u.leasing == 0 {
		l.signal()
	}
	l.tidy(key, u)
}

// Arrived records the size of the contexts of n tasks for which capacity was reserved.
func (l *Ledger) Arrived(key store.TypeKey, n, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == 0 {
		return
	}
	l.present.Add(int64(n))
	u := l.usage(key)
	u.coming -= n
	l.addBytes(u, bytes)
	u.learn(bytes, n)
	l.expect(u)
}

// Answered records that n tasks now use more bytes, or fewer: an output instead of a context.
func (l *Ledger) Answered(key store.TypeKey, n, before, now int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usage(key)
	l.addBytes(u, now-before)
	if now > before && n > 0 {
		u.learn(now, n)
		l.expect(u)
	}
}

// Lend takes up to most bytes for documents that are read for tasks of a type, which are in flight
// with some bytes already, their own. It returns how many bytes it took: 0 if the budget is used
// up, and at least one if no other task holds any. Release gives them back.
func (l *Ledger) Lend(key store.TypeKey, own, most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usage(key)
	free, has := l.bytesOf(u)
	free += float64(own)
	has -= float64(own)
	n := int((bytesShare*free-has)/(bytesShare+1)) - own
	if has == 0 && (free > 0 || l.bytes == own) {
		n = max(n, 1)
	}
	n = min(max(0, n), most)
	l.addBytes(u, n)
	return n
}

// Release gives back the capacity of n tasks, and the bytes that they use.
func (l *Ledger) Release(key store.TypeKey, n, bytes int) {
	if n == 0 && bytes == 0 {
		return
	}
	l.mu.Lock()
	l.present.Add(int64(-n))
	u := l.usage(key)
	l.addBytes(u, -bytes)
	l.release(key, u, n)
}

// Unused gives back capacity that was reserved for n tasks which did not come.
func (l *Ledger) Unused(key store.TypeKey, n int) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	u := l.usage(key)
	u.coming -= n
	l.expect(u)
	if u.leasing -= n; u.leasing == 0 {
		l.signal()
	}
	l.release(key, u, n)
}

// release gives capacity back, first to the waiting asks. It unlocks l.mu.
func (l *Ledger) release(key store.TypeKey, u *usage, n int) {
	l.count(key, u, -n)
	l.tidy(key, u)
	if l.free == l.capacity {
		l.signal()
	}
	l.serve()
	var woken map[store.TypeKey]struct{}
	if len(l.refused) > 0 {
		woken = l.refused
		l.refused = map[store.TypeKey]struct{}{}
	}
	l.mu.Unlock()
	for key := range woken {
		l.wake(key)
	}
}

// Why returns the reason why one more task of a type gets no capacity; "": it would get some.
func (l *Ledger) Why(a Ask) asyncflow.WaitReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, why := l.most(a)
	return why
}

// InFlight returns how many tasks are in flight.
func (l *Ledger) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.capacity - l.free
}

// Present returns how many tasks are in flight without those that are coming. Unlike all else, it
// may be called from line.
func (l *Ledger) Present() int { return int(l.present.Load()) }

// AllowNew sets whether new tasks may begin at once.
func (l *Ledger) AllowNew(allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newAllowed = allowed
}

// Sending counts n deliveries to an endpoint that begin; if n is negative, that end.
func (l *Ledger) Sending(endpoint string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endpoints[endpoint] += n; l.endpoints[endpoint] == 0 {
		delete(l.endpoints, endpoint)
	}
}

// SendingTo returns how many deliveries to some endpoints are under way.
func (l *Ledger) SendingTo(endpoints []string) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := make(map[string]int, len(endpoints))
	for _, e := range endpoints {
		if n := l.endpoints[e]; n > 0 {
			counts[e] = n
		}
	}
	return counts
}

// Free returns how many more tasks may be in flight, regardless of shares.
func (l *Ledger) Free() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free
}

// reserve reserves capacity for n tasks of an ask. l.mu is held, as in count.
func (l *Ledger) reserve(a Ask, n int) {
	if n == 0 {
		return
	}
	u := l.usage(a.Type)
	l.count(a.Type, u, n)
	u.leasing += n
	u.coming += n
	l.expect(u)
}

// count adds n to the tasks in flight.
func (l *Ledger) count(key store.TypeKey, u *usage, n int) {
	l.free -= n
	u.inFlight += n
	if u.quickEntry == nil {
		l.slow += n
	}
	if l.tenants[key.Tenant] += n; l.tenants[key.Tenant] == 0 {
		delete(l.tenants, key.Tenant)
	}
}
