package callbacks

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache keeps what is made for tenants, by name, within a number of bytes. A tenant's values take
// a quarter of them at most: beyond that, those go that it used least recently. When the tenants
// together have too many, the one gives way that has used nothing for the longest time.
type cache[V any] struct {
	most int // bytes

	mu      sync.Mutex
	bytes   int
	tenants *simplelru.LRU[string, *share[V]]
}

// share is what is kept for a tenant.
type share[V any] struct {
	bytes  int
	values *simplelru.LRU[string, sized[V]]
}

type sized[V any] struct {
	value V
	bytes int
}

// entryBytes is about what an entry takes besides its name and its value.
const entryBytes = 256

func newCache[V any](most int) *cache[V] {
	return &cache[V]{most: most, tenants: newLRU[*share[V]]()}
}

// newLRU returns one without a bound of its own.
func newLRU[V any]() *simplelru.LRU[string, V] {
	l, err := simplelru.NewLRU[string, V](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return l
}

// get returns what is kept for a tenant by a name.
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

// put keeps a value of some bytes in the place of the one of its name. It returns what is no
// longer kept, which may be the value itself.
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
		c.tenants.Add(tenant, s) // the last value took its share with it
	}
	bytes += len(name) + entryBytes
	s.values.Add(name, sized[V]{value, bytes})
	s.bytes, c.bytes = s.bytes+bytes, c.bytes+bytes
	for s.bytes > c.most/4 {
		gone = append(gone, c.removeOldest(tenant, s))
	}
	for c.bytes > c.most {
		idlest, theirs, _ := c.tenants.GetOldest()
		gone = append(gone, c.removeOldest(idlest, theirs))
	}
	return gone
}

// drop ends what is kept by a name, if it is the value that is meant.
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
	s.bytes, c.bytes = s.bytes-kept.bytes, c.bytes-kept.bytes
	if s.values.Len() == 0 {
		c.tenants.Remove(tenant)
	}
	return kept.value
}
