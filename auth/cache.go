package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	maxCached   = 10_000 // tokens per Verifier; some 3 MB
	cacheShards = 16     // so that goroutines rarely contend for one lock
	sampleSize  = 8      // entries compared to find the one to evict
)

// tokenSum is the hash of a token, signature included.
type tokenSum = [sha256.Size]byte

// entry is a verified token. It is valid at a time t if from <= t < ExpiresAt, without the leeway
// at the end: after the expiry, each call is verified again. It is valid only while the key that
// verified it is its issuer's.
type entry struct {
	principal Principal
	from      time.Time // zero: always
	issuer    *trusted
	key       keyMark
}

func (e entry) isValid(now time.Time) bool {
	return now.Before(e.principal.ExpiresAt) && !now.Before(e.from) &&
		e.issuer.ring.Load().has(e.key)
}

// cache remembers verified tokens. It is safe for concurrent use.
type cache struct {
	shards [cacheShards]shard
}

type shard struct {
	mu      sync.RWMutex
	max     int
	entries map[tokenSum]entry
}

// newCache returns a cache of at most limit entries; limit must be at least cacheShards.
func newCache(limit int) *cache {
	c := &cache{}
	for i := range c.shards {
		c.shards[i].max = limit / cacheShards
		c.shards[i].entries = map[tokenSum]entry{}
	}
	return c
}

// shard picks the shard by the hash, which is even and which nobody can predict for a token.
func (c *cache) shard(sum tokenSum) *shard { return &c.shards[sum[0]%cacheShards] }

// get returns the principal of a token, if the token is cached and valid at now.
func (c *cache) get(sum tokenSum, now time.Time) (Principal, bool) {
	s := c.shard(sum)
	s.mu.RLock()
	e, ok := s.entries[sum]
	s.mu.RUnlock()
	if !ok || !e.isValid(now) {
		return Principal{}, false
	}
	return e.principal, true
}

// put caches a token, and evicts another if the cache is full. It skips a token that isn't valid at
// now, such as one accepted within the leeway.
func (c *cache) put(sum tokenSum, e entry, now time.Time) {
	if !e.isValid(now) {
		return
	}
	s := c.shard(sum)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.entries[sum]; !known && len(s.entries) >= s.max {
		s.evict()
	}
	s.entries[sum] = e
}

// evict removes the entry that expires first among a few random ones: the iteration over a map
// starts at random. So expired entries go first, and a hit needs no list to be kept in order.
func (s *shard) evict() {
	var victim tokenSum
	var earliest time.Time
	seen := 0
	for sum, e := range s.entries {
		if seen == 0 || e.principal.ExpiresAt.Before(earliest) {
			victim, earliest = sum, e.principal.ExpiresAt
		}
		if seen++; seen == sampleSize {
			break
		}
	}
	delete(s.entries, victim)
}
