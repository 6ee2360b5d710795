package callbacks

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache keeps values that are made for tenants, by tenant and name, and bounds their bytes. It
// evicts by least recent use:
//
//   - A tenant gets at most a quarter of the bytes. Beyond that, it loses its own values.
//   - When all tenants together use too many, the longest idle tenant loses values.
type cache[V any] struct {
	most int // bytes

	mu      sync.Mutex
	bytes   int
	tenants *simplelru.LRU[string, *share[V]]
}

// share holds the values of a tenant.
type share[V any] struct {
	bytes  int
	values *simplelru.LRU[string, sized[V]]
}

type sized[V any] struct {
	value V
	bytes int
}

// entryBytes is roughly what an entry takes in addition to its name and its value.
const entryBytes = 256

func newCache[V any](most int) *cache[V] {
	return &cache[V]{most: most, tenants: newLRU[*share[V]]()}
}

// newLRU returns an LRU without a bound of its own: cache bounds it by bytes.
func newLRU[V any]() *simplelru.LRU[string, V] {
	l, err := simplelru.NewLRU[string, V](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return l
}

// get returns the value of a tenant and a name.
func (c *cache[V]) get(tenant, name string) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.tenants.Get(tenant); ok {
		if kept, ok := s.values.Get(name); ok {
			return kept.value, true
		}
	}
	return value, false
}

// put stores a value, and replaces the one with the same name. bytes is the size of the value. It
// returns the values that are no longer kept; the new one may be among them.
func (c *cache[V]) put(tenant, name string, value V, bytes int) (gone []V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.tenants.Get(tenant)
	if !ok {
		s = &share[V]{values: newLRU[sized[V]]()}
		c.tenants.Add(tenant, s)
	}
	if before, ok := s.values.Peek(name); ok {
		gone = append(gone, c.remove(tenant, s, name, before))
		c.tenants.Add(tenant, s) // remove drops the share with its last value
	}
	bytes += len(name) + entryBytes
	s.values.Add(name, sized[V]{value, bytes})
	s.bytes += bytes
	c.bytes += bytes
	for s.bytes > c.most/4 {
		gone = append(gone, c.removeOldest(tenant, s))
	}
	for c.bytes > c.most {
		idlest, theirs, _ := c.tenants.GetOldest()
		gone = append(gone, c.removeOldest(idlest, theirs))
	}
	return gone
}

// drop removes the value of a tenant and a name if meant returns true for it.
func (c *cache[V]) drop(tenant, name string, meant func(V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.tenants.Peek(tenant); ok {
		if kept, ok := s.values.Peek(name); ok && meant(kept.value) {
			c.remove(tenant, s, name, kept)
		}
	}
}

func (c *cache[V]) removeOldest(tenant string, s *share[V]) V {
	name, kept, _ := s.values.GetOldest()
	return c.remove(tenant, s, name, kept)
}

func (c *cache[V]) remove(tenant string, s *share[V], name string, kept sized[V]) V {
	s.values.Remove(name)
	s.bytes -= kept.bytes
	c.bytes -= kept.bytes
	if s.values.Len() == 0 {
		c.tenants.Remove(tenant)
	}
	return kept.value
}
