package ledger

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// All types share a node's capacity. A tenant may use eight ninths of what other tenants leave
// free. A type may use nine tenths of its tenant's share, and one of several endpoints of a type
// two thirds. So newcomers always find some capacity, and all that want much get the same. A single
// type gets four fifths. Six types of a tenant get a seventh each; they leave 1.5 % for another
// type of the tenant, and an eighth for other tenants. (Network switches share their buffers this
// way: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
// 1998.)
//
// These rests are too small if many types hang, at once or one after the other. So all types that
// are not quick together get what a single type gets: four fifths. Beyond that each may run one
// task, to show that it is quick.
//
// Types share the byte budget for contexts and outputs in the same way.
const (
	tenantShare   = 8 // for each task that is left free
	typeShare     = 9
	slowShare     = 4
	endpointShare = 2
	bytesShare    = 4
)

// A type is quick for quickTime after one of its deliveries took no longer than quickTime. A type
// that hangs isn't quick, nor is a type until one of its first deliveries is back.
const quickTime = time.Second

// unknownContext is the assumed size of a context, in bytes, until the first one of its type.
const unknownContext = 64 << 10

// most returns how many tasks an ask may get now. If none, why is the reason.
func (l *Ledger) most(a Ask) (n int, why asyncflow.WaitReason) {
	if a.New && !l.mayJump(a.Type) {
		return 0, asyncflow.WaitCapacity
	}
	u := l.usage(a.Type)
	n = a.N
	bound := func(most int, reason asyncflow.WaitReason) {
		if n > most {
			n = max(0, most)
		}
		if n == 0 && why == "" {
			why = reason
		}
	}
	bound(a.Limits.Type-u.inFlight, asyncflow.WaitType)
	bound(a.Limits.Tenant-l.tenants[a.Type.Tenant], asyncflow.WaitConcurrency)
	bound(l.free, asyncflow.WaitCapacity)
	bound(l.bytesFor(u), asyncflow.WaitCapacity)
	bound(l.shareOf(a.Type, u, a.Now), asyncflow.WaitCapacity)
	if a.New {
		bound(l.forAnyEndpoint(a.Type, a.Endpoints, 0), asyncflow.WaitCapacity)
	}
	return n, why
}

// mayJump reports whether new tasks of a type may begin at once: no task stands in line before
// them.
func (l *Ledger) mayJump(key store.TypeKey) bool {
	empty, _ := l.line(key)
	return empty && l.newAllowed
}

// shareOf returns how many more tasks a type may run by its share of the capacity.
func (l *Ledger) shareOf(key store.TypeKey, u *usage, now time.Time) int {
	share := typeRest(u.inFlight, l.tenants[key.Tenant], l.free)
	if l.slowDown(now); u.quickEntry != nil {
		return share
	}
	rest := shareRest(slowShare, l.slow, l.free)
	if u.inFlight == 0 {
		rest = max(rest, 1)
	}
	return min(share, rest)
}

// slowDown removes the types from the quick ones that are quick no more.
func (l *Ledger) slowDown(now time.Time) {
	for e := l.quick.Front(); e != nil && now.Sub(e.Value.(*usage).quick) >= quickTime; {
		l.makeSlow(e.Value.(*usage))
		e = l.quick.Front()
	}
}

// forAnyEndpoint returns how many tasks may begin, whichever of the type's endpoints they are for.
// reserved is how many of them hold capacity already. If the result is less than one, an endpoint's
// share is used up, and tasks for it must be blocked.
func (l *Ledger) forAnyEndpoint(key store.TypeKey, endpoints []string, reserved int) int {
	least := l.capacity
	if len(endpoints) < 2 {
		return least
	}
	unknown := l.usage(key).inFlight - reserved // their endpoint isn't known yet
	for _, e := range endpoints {
		unknown -= l.endpoints[e]
	}
	for _, e := range endpoints {
		least = min(least, shareRest(endpointShare, l.endpoints[e]+max(0, unknown),
			l.free+reserved))
	}
	return least
}

// ForAnyEndpoint is forAnyEndpoint for n tasks of a type with capacity.
func (l *Ledger) ForAnyEndpoint(key store.TypeKey, endpoints []string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forAnyEndpoint(key, endpoints, n)
}

// bytesFor returns for how many more tasks of a type the byte budget suffices: at least one, if
// none of the type is in flight and the budget isn't used up.
func (l *Ledger) bytesFor(u *usage) int {
	free, has := l.bytesOf(u)
	n := int((bytesShare*free - has) / (bytesShare + 1) / u.mean())
	if has == 0 && (free > 0 || l.bytes == 0) {
		n = max(n, 1)
	}
	return max(0, n)
}

// bytesOf returns how many bytes are free, and how many a type uses.
func (l *Ledger) bytesOf(u *usage) (free, has float64) {
	return float64(l.mostBytes - l.bytes - l.expected), float64(u.bytes + u.expected)
}

// mean returns the expected bytes of a task of a type.
func (u *usage) mean() float64 {
	if u.meanBytes == 0 {
		return unknownContext
	}
	return u.meanBytes
}

// shareRest returns how much more an owner of has may take, if free is left.
func shareRest(share, has, free int) int { return roundUp(share*free-has, share+1) }

// EndpointRest returns how many more deliveries an endpoint with has under way may get, if free is
// left.
func EndpointRest(has, free int) int { return shareRest(endpointShare, has, free) }

// typeRest is shareRest for a type within its tenant's share:
// 9/10 × (ofType + 8/9 × (ofTenant + free) − ofTenant) − ofType.
func typeRest(ofType, ofTenant, free int) int {
	return max(0, roundUp(tenantShare*free-ofTenant-ofType, typeShare+1))
}

// roundUp divides, and rounds up.
func roundUp(n, by int) int {
	if n <= 0 {
		return n / by
	}
	return (n + by - 1) / by
}

// Counts are what a ledger counts of all types together, for tests of the dispatcher.
type Counts struct {
	Bytes   int // of the contexts and outputs of tasks in flight
	Waiting int // asks for new tasks that wait for capacity
	Types   int // with data that the ledger keeps
}

// Counts returns what the ledger counts now.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Counts{Bytes: l.bytes, Types: max(len(l.types), l.quick.Len())}
	for _, queue := range l.waiting {
		for _, w := range queue {
			if w.ask.New {
				c.Waiting++
			}
		}
	}
	return c
}

// Leasing returns how many tasks of a type are in flight before the commit of their leases.
func (l *Ledger) Leasing(key store.TypeKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.types[key]; u != nil {
		return u.leasing
	}
	return 0
}

// Occupy takes capacity for n tasks of a type, whether or not there is any.
func (l *Ledger) Occupy(key store.TypeKey, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserve(Ask{Type: key}, n)
}

// ForgetDurations makes the ledger forget how long deliveries of a type took.
func (l *Ledger) ForgetDurations(key store.TypeKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usage(key).meanDuration = 0
}
