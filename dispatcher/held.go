package dispatcher

import (
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// held counts the tasks that the node holds, by type and by tenant.
type held struct {
	mu      sync.Mutex
	types   map[store.TypeKey]int // without zeros
	tenants map[string]int
	lately  map[store.TypeKey]lately
}

// lately is how long the deliveries of a type took.
type lately struct {
	mean  time.Duration // of the last ones, more or less
	least time.Duration // 1 in leastOf of the last ones took less, more or less
	quick time.Time     // when one last ended that took no longer than quickTime
}

// A type is quick for quickTime after a delivery of it that took no longer than that. One
// that hangs is not, nor one that has only just begun: nobody knows yet.
const quickTime = time.Second

// leastOf is of how many deliveries the quickest one tells how long they take when nothing is
// in their way. It is approached in steps of 1 in leastStep.
const (
	leastOf   = 20
	leastStep = 16 * leastOf
)

func newHeld() *held {
	return &held{types: map[store.TypeKey]int{}, tenants: map[string]int{}, lately: map[store.TypeKey]lately{}}
}

func (h *held) add(key store.TypeKey, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.types[key] += n; h.types[key] == 0 {
		delete(h.types, key)
	}
	if h.tenants[key.Tenant] += n; h.tenants[key.Tenant] == 0 {
		delete(h.tenants, key.Tenant)
	}
}

// queued returns how many of n deliveries of a type are under way because others are, too:
// those that would have ended by now if each took the least time. (As TCP Vegas has it: the
// congestion is what is under way beyond rate × least round trip.) Where deliveries differ
// in what they have to do, it says too many.
func (h *held) queued(key store.TypeKey, n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lately[key]
	if l.mean <= l.least {
		return 0
	}
	return int(float64(n) * float64(l.mean-l.least) / float64(l.mean))
}

func (h *held) count(key store.TypeKey) (ofType, ofTenant int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.types[key], h.tenants[key.Tenant]
}

func (h *held) ofTenant(tenant string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tenants[tenant]
}

// ended takes in that a delivery of a type has ended after a time.
func (h *held) ended(key store.TypeKey, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	took = max(took, 0) // the database's clock may be set
	l, known := h.lately[key]
	if !known {
		l.mean, l.least = took, took
	}
	l.mean += (took - l.mean) / 16
	if step := l.least/leastStep + 1; took < l.least { // as far down as it goes up for the others: it rests where 1 in leastOf took less
		l.least -= (leastOf - 1) * step
	} else {
		l.least += step
	}
	if took <= quickTime {
		l.quick = now
	}
	h.lately[key] = l
}

// takes returns how long deliveries of a type took lately on average; 0: nobody knows.
func (h *held) takes(key store.TypeKey) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lately[key].mean
}

func (h *held) isQuick(key store.TypeKey, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.quickAt(key, now)
}

// quickAt is isQuick with h.mu held.
func (h *held) quickAt(key store.TypeKey, now time.Time) bool {
	return now.Sub(h.lately[key].quick) < quickTime
}

// lastQuick returns how long it is ago that a quick delivery of a type ended.
func (h *held) lastQuick(key store.TypeKey, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.lately[key].quick)
}

// slow returns how many tasks the types hold together that are not quick.
func (h *held) slow(now time.Time) (sum int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, n := range h.types {
		if !h.quickAt(key, now) {
			sum += n
		}
	}
	return sum
}

// forget drops what is known of a type that is gone.
func (h *held) forget(key store.TypeKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lately, key)
}
