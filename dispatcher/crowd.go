package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A node's slots are for all. Of those that nobody else has, a tenant gets eight ninths, a
// type of it nine tenths of what its tenant gets, and one of several endpoints of a type two
// thirds: so there are always some for those who come, and those who all want many get the
// same. A type alone gets four fifths; six of a tenant get a seventh each, and leave some
// 1.5 % for another one of it, and an eighth for other tenants. (Network switches share their
// buffers so: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
// switches", 1998.)
//
// That is little when many types hang, or one after the other. So all types that are not
// quick get together what one alone gets, four fifths. Above that each may have one task, to
// show that it is.
const (
	tenantShare   = 8 // for each one that is left free
	typeShare     = 9
	slowShare     = 4
	endpointShare = 2
)

// slotRoom returns how many more slots one may have that has some, with so many free.
func slotRoom(share, has, free int) int { return roundUp(share*free-has, share+1) }

// typeRoom is slotRoom for a type within its tenant's share:
// 9/10 × (ofType + 8/9 × (ofTenant + free) − ofTenant) − ofType.
func typeRoom(ofType, ofTenant, free int) int {
	return max(0, roundUp(tenantShare*free-ofTenant-ofType, typeShare+1))
}

// roundUp divides, and rounds up.
func roundUp(n, by int) int {
	if n <= 0 {
		return n / by
	}
	return (n + by - 1) / by
}

// fair returns how many more slots a type may have, those included that were taken for it, and
// those of so many of its tasks that have ended.
func (d *Dispatcher) fair(key store.TypeKey, taken, ended int, now time.Time) int {
	free := d.slots.rest() + taken + ended
	ofType, ofTenant := d.held.count(key)
	ofType, ofTenant = ofType-ended, ofTenant-ended
	room := typeRoom(ofType, ofTenant, free)
	if slotRoom(slowShare, d.cfg.Concurrency-free, free) >= room || d.held.isQuick(key, now) {
		return room // whoever holds the others
	}
	slow := slotRoom(slowShare, d.held.slow(now), free)
	if ofType == 0 {
		slow = max(slow, 1)
	}
	return max(0, min(room, slow))
}

// crowd counts the attempts under way on this node by endpoint.
type crowd struct {
	mu        sync.Mutex
	endpoints map[string]int
}

func (c *crowd) add(endpoint string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoints[endpoint] += n; c.endpoints[endpoint] == 0 {
		delete(c.endpoints, endpoint)
	}
}

// counts returns those of a type's endpoints.
func (c *crowd) counts(t *store.Type) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[string]int{}
	for _, e := range t.AllEndpoints() {
		if n := c.endpoints[e.ID]; n > 0 {
			counts[e.ID] = n
		}
	}
	return counts
}

// of returns how many those of a type's endpoints are.
func (c *crowd) of(t *store.Type) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range t.AllEndpoints() {
		n += c.endpoints[e.ID]
	}
	return n
}

// endpointRoom returns how many tasks of a type may be leased whichever of its endpoints
// they are for, with so many slots that are free, some of which are reserved for them: with
// fewer than one, an endpoint has so many that its tasks are to be held back.
func (d *Dispatcher) endpointRoom(t *store.Type, free, reserved int) int {
	least := d.cfg.Concurrency
	if !t.ServesSeveral() {
		return least
	}
	endpoints := slices.DeleteFunc(t.AllEndpoints(), func(e asyncflow.Endpoint) bool { return !e.Serves() })
	here := d.crowd.counts(t)
	unknown, _ := d.held.count(t.Key()) // those that are on their way to some endpoint
	unknown -= reserved
	for _, n := range here {
		unknown -= n
	}
	for _, e := range endpoints {
		least = min(least, slotRoom(endpointShare, here[e.ID]+max(0, unknown), free))
	}
	return least
}
