package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	maxCached   = 10_000 // tokens per Verifier; some 3 MB
	cacheShards = 16     // so that goroutines seldom meet at one lock
	sampleSize  = 8      // entries looked at to find one to evict
)

// tokenSum is the hash of a token, signature included.
type tokenSum = [sha256.Size]byte

// entry is a verified token. It holds at a time t if from <= t < ExpiresAt,
// the leeway left out at the end: past the expiry each call is verified anew. It holds
// no longer than its issuer has the key that it was verified with.
type entry struct {
	principal Principal
	from      time.Time // zero: always
	issuer    *trusted
	key       keyMark
}

func (e entry) holds(now time.Time) bool {
	return now.Before(e.principal.ExpiresAt) && !now.Before(e.from) && e.issuer.ring.Load().has(e.key)
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

// newCache returns a cache of at most limit entries, which must be at least
// cacheShards.
func newCache(limit int) *cache {
	c := &cache{}
	for i := range c.shards {
		c.shards[i].max = limit / cacheShards
		c.shards[i].entries = map[tokenSum]entry{}
	}
	return c
}

// shard picks by the hash, which spreads evenly and which nobody can aim.
func (c *cache) shard(sum tokenSum) *shard { return &c.shards[sum[0]%cacheShards] }

// get returns the principal of a token, if it is known and holds at now.
func (c *cache) get(sum tokenSum, now time.Time) (Principal, bool) {
	s := c.shard(sum)
	s.mu.RLock()
	e, ok := s.entries[sum]
	s.mu.RUnlock()
	if !ok || !e.holds(now) {
		return Principal{}, false
	}
	return e.principal, true
}

// put remembers a token, evicting another if there is no room. It passes over
// one that doesn't hold at now, such as one accepted within the leeway.
func (c *cache) put(sum tokenSum, e entry, now time.Time) {
	if !e.holds(now) {
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

// evict removes the entry that expires first among a few taken at random, as
// the iteration over a map starts at random. Expired entries go first that way,
// without a list to keep in order on each hit.
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
