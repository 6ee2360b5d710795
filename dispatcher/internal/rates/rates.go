package rates

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates keeps a token bucket for everything with a rate, with this node's share: the rate divided
// by the number of nodes. A bucket holds the tokens of a tenth of a second, at least one, so that
// no second exceeds the rate by more than a tenth (and one for each node). A node that the other
// nodes don't know yet gets no share.
type Rates struct {
	nodes   func() int
	joining func() bool

	mu      sync.Mutex
	tenants map[string]map[Key]*bucket
	kept    int // buckets of all tenants
	most    int // most buckets that are kept
}

// Key is the name of something with a rate: a tenant, an endpoint, a type, or a flow key of a
// type.
type Key struct{ Tenant, Scope, Name string }

type bucket struct {
	*rate.Limiter
	waiting bool // a timer waits for the next token
}

const (
	// maxBuckets is the most buckets that are kept, some 400 bytes each with a long flow key. At
	// most a quarter of them are one tenant's.
	maxBuckets = 100_000
	// bucketSample is the sample size from which the bucket to drop for a new one is picked.
	bucketSample = 8
)

const burstTime = 100 * time.Millisecond

// joiningPause is the time between two checks for tokens on a node without a share yet.
const joiningPause = 100 * time.Millisecond

// New returns the token buckets of a node. nodes returns the number of nodes, and joining reports
// whether the other nodes don't know this node yet.
func New(nodes func() int, joining func() bool) *Rates {
	return &Rates{nodes: nodes, joining: joining, most: maxBuckets,
		tenants: map[string]map[Key]*bucket{}}
}

// bucket returns the bucket of a key. r.mu is held.
func (r *Rates) bucket(key Key, perSecond float64, now time.Time) *bucket {
	share := perSecond / float64(r.nodes())
	burst := max(1, int(share*burstTime.Seconds()))
	if r.joining() {
		share, burst = 0, 0
	}
	b := r.tenants[key.Tenant][key]
	switch {
	case b == nil:
		b = &bucket{Limiter: rate.NewLimiter(rate.Limit(share), burst)}
		r.add(key, b, now)
	case b.Limit() != rate.Limit(share): // the rate or the number of nodes is another one
		b.SetLimitAt(now, rate.Limit(share))
		b.SetBurstAt(now, burst)
	}
	return b
}

// add keeps a new bucket. If there are too many of its tenant, or of all tenants together, it drops
// another. r.mu is held.
func (r *Rates) add(key Key, b *bucket, now time.Time) {
	if len(r.tenants[key.Tenant]) >= r.most/4 {
		r.evict(key.Tenant, now)
	} else if r.kept >= r.most {
		r.evict(r.largest(), now)
	}
	if r.tenants[key.Tenant] == nil {
		r.tenants[key.Tenant] = map[Key]*bucket{}
	}
	r.tenants[key.Tenant][key] = b
	r.kept++
}

// largest returns the tenant with the most buckets among a few. These are random, because the
// iteration over a map begins at random.
func (r *Rates) largest() (most string) {
	seen := 0
	for tenant, buckets := range r.tenants {
		if len(buckets) > len(r.tenants[most]) {
			most = tenant
		}
		if seen++; seen == bucketSample {
			break
		}
	}
	return most
}

// evict drops a tenant's bucket: among a few random ones, the one that will be full first. A full
// bucket can be made again without loss; otherwise the fewest tokens come too early.
func (r *Rates) evict(tenant string, now time.Time) {
	var victim Key
	soonest := time.Duration(math.MaxInt64)
	seen := 0
	for key, b := range r.tenants[tenant] {
		if rest := b.untilFull(now); seen == 0 || rest < soonest {
			victim = key
			soonest = rest
		}
		if seen++; seen == bucketSample {
			break
		}
	}
	delete(r.tenants[tenant], victim)
	r.kept--
	if len(r.tenants[tenant]) == 0 {
		delete(r.tenants, tenant)
	}
}

// untilFull returns the time until the bucket is full, if no token is taken. If a timer waits for
// its next token, that is the longest time.
func (b *bucket) untilFull(now time.Time) time.Duration {
	missing := float64(b.Burst()) - b.TokensAt(now)
	switch {
	case b.waiting:
		return math.MaxInt64
	case missing <= 0:
		return 0
	}
	return time.Duration(min(missing/float64(b.Limit())*float64(time.Second), math.MaxInt64/2))
}

// Available returns how many tokens there are. If none, it also returns when there is one.
func (r *Rates) Available(key Key, perSecond float64, now time.Time) (int, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(key, perSecond, now)
	tokens := b.TokensAt(now)
	switch {
	case tokens >= 1:
		return int(tokens), now
	case b.Limit() == 0:
		return 0, now.Add(joiningPause)
	}
	return 0, now.Add(time.Duration((1 - tokens) / float64(b.Limit()) * float64(time.Second)))
}

// Spend takes n tokens; the bucket may go below zero. If n is negative, Spend gives tokens back.
func (r *Rates) Spend(key Key, perSecond float64, now time.Time, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(key, perSecond, now)
	if b.Limit() == 0 {
		return
	}
	for ; n > b.Burst(); n -= b.Burst() {
		b.ReserveN(now, b.Burst())
	}
	b.ReserveN(now, n)
}

// Pace returns how many tokens come at a time, and the time until the next ones.
func (r *Rates) Pace(perSecond float64) (int, time.Duration) {
	share := perSecond / float64(r.nodes())
	n := max(1, int(share*paceTime.Seconds()))
	return n, time.Duration(float64(n) / share * float64(time.Second))
}

// paceTime is the least time between two releases of a flow key.
const paceTime = 20 * time.Millisecond

// After calls do once after a time, unless such a call is already planned for the key.
func (r *Rates) After(key Key, d time.Duration, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.tenants[key.Tenant][key]
	if b == nil || b.waiting {
		return
	}
	b.waiting = true
	time.AfterFunc(d, func() {
		r.mu.Lock()
		b.waiting = false
		r.mu.Unlock()
		do()
	})
}
