package dispatcher

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// The capacity of a node is for all. Of what the others leave free, a tenant gets eight ninths, a
// type of it nine tenths of what its tenant gets, and one of several endpoints of a type two
// thirds. So there is always some left for newcomers, and those who all want much get the same. A
// type alone gets four fifths; six of a tenant get a seventh each, and leave 1.5 % for another one
// of it, and an eighth for other tenants. (Network switches share their buffers so: Choudhury and
// Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.)
//
// That is little when many types hang, or one after the other. So all types that are not quick
// get together what one alone gets, four fifths. Above that each may have one task, to show that
// it is quick.
//
// The bytes of contexts and outputs are shared by types in the same way.
const (
	tenantShare   = 8 // for each one that is left free
	typeShare     = 9
	slowShare     = 4
	endpointShare = 2
	bytesShare    = 4
)

// A type is quick for quickTime after a delivery of it that took no longer than that. One that
// hangs is not, nor one that has only just begun: nobody knows yet.
const quickTime = time.Second

// unknownContext is how many bytes a context is taken to have while none of its type has come.
const unknownContext = 64 << 10

// most returns how many tasks an ask may get now. If there are none, why says what keeps them.
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
	return empty && l.admits
}

// shareOf returns how many more tasks a type may have by its share of the capacity.
func (l *Ledger) shareOf(key store.TypeKey, u *usage, now time.Time) int {
	share := typeRest(u.inFlight, l.tenants[key.Tenant], l.free)
	if shareRest(slowShare, l.capacity-l.free, l.free) >= share || u.isQuick(now) {
		return share
	}
	slow := 0
	for other := range l.active {
		if !other.isQuick(now) {
			slow += other.inFlight
		}
	}
	rest := shareRest(slowShare, slow, l.free)
	if u.inFlight == 0 {
		rest = max(rest, 1)
	}
	return min(share, rest)
}

func (u *usage) isQuick(now time.Time) bool { return now.Sub(u.quick) < quickTime }

// forAnyEndpoint returns how many tasks may begin whichever of a type's endpoints they are for.
// reserved is how many of them have capacity already. Less than one means that some endpoint has
// used up its share, so that tasks for it must be blocked.
func (l *Ledger) forAnyEndpoint(key store.TypeKey, endpoints []string, reserved int) int {
	least := l.capacity
	if len(endpoints) < 2 {
		return least
	}
	unknown := l.usage(key).inFlight - reserved // those on their way to some endpoint
	for _, e := range endpoints {
		unknown -= l.endpoints[e]
	}
	for _, e := range endpoints {
		least = min(least, shareRest(endpointShare, l.endpoints[e]+max(0, unknown), l.free+reserved))
	}
	return least
}

// ForAnyEndpoint is forAnyEndpoint for n tasks of a type that have capacity.
func (l *Ledger) ForAnyEndpoint(key store.TypeKey, endpoints []string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forAnyEndpoint(key, endpoints, n)
}

// bytesFor returns for how many more tasks of a type there is memory: one at least, if it has none
// and not all is taken.
func (l *Ledger) bytesFor(u *usage) int {
	free, has := l.bytesOf(u)
	n := int((bytesShare*free - has) / (bytesShare + 1) / u.mean())
	if has == 0 && (free > 0 || l.bytes == 0) {
		n = max(n, 1)
	}
	return max(0, n)
}

// bytesOf returns how many bytes are free, and how many a type has.
func (l *Ledger) bytesOf(u *usage) (free, has float64) {
	free = float64(l.mostBytes - l.bytes)
	for other := range l.active {
		free -= float64(other.coming) * other.mean()
	}
	return free, float64(u.bytes) + float64(u.coming)*u.mean()
}

// mean returns the bytes that a task of a type is taken to have.
func (u *usage) mean() float64 {
	if u.meanBytes == 0 {
		return unknownContext
	}
	return u.meanBytes
}

// shareRest returns how much more one may have that has some, with some free.
func shareRest(share, has, free int) int { return roundUp(share*free-has, share+1) }

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
