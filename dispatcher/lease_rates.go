package dispatcher

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rates are the token buckets of what has a rate, with this node's share of it: the rate
// by the number of nodes. A bucket holds what comes in a tenth of a second, one at least,
// so that no second has more than a tenth too many (and one for each node). A node that the
// others don't know of yet has no share.
type rates struct {
	nodes   func() int
	joining func() bool

	mu      sync.Mutex
	tenants map[string]map[rateKey]*bucket
	kept    int // buckets of all tenants
	most    int // that are kept
}

// rateKey names what has a rate: a tenant, an endpoint, a type, or a flow key of a type.
type rateKey struct{ tenant, of, name string }

type bucket struct {
	*rate.Limiter
	waiting bool // somebody is told when it has a token
}

const (
	// maxBuckets is how many buckets are kept, some 400 bytes each with a long flow key. A tenant
	// has a quarter of them at most.
	maxBuckets = 100_000
	// bucketSample is among how many the one is looked for that gives way to a new one.
	bucketSample = 8
)

const burstTime = 100 * time.Millisecond

// joiningPause is the time between two looks for tokens on a node that has no share yet.
const joiningPause = 100 * time.Millisecond

func newRates(nodes func() int, joining func() bool) *rates {
	return &rates{nodes: nodes, joining: joining, most: maxBuckets,
		tenants: map[string]map[rateKey]*bucket{}}
}

// bucket returns the bucket of a key. r.mu is held.
func (r *rates) bucket(key rateKey, perSecond float64, now time.Time) *bucket {
	share := perSecond / float64(r.nodes())
	burst := max(1, int(share*burstTime.Seconds()))
	if r.joining() {
		share, burst = 0, 0
	}
	b := r.tenants[key.tenant][key]
	switch {
	case b == nil:
		b = &bucket{Limiter: rate.NewLimiter(rate.Limit(share), burst)}
		r.add(key, b, now)
	case b.Limit() != rate.Limit(share): // it was changed, or the nodes have
		b.SetLimitAt(now, rate.Limit(share))
		b.SetBurstAt(now, burst)
	}
	return b
}

// add keeps a new bucket. If its tenant, or all together, have too many, another one goes.
// r.mu is held.
func (r *rates) add(key rateKey, b *bucket, now time.Time) {
	if len(r.tenants[key.tenant]) >= r.most/4 {
		r.evict(key.tenant, now)
	} else if r.kept >= r.most {
		r.evict(r.largest(), now)
	}
	if r.tenants[key.tenant] == nil {
		r.tenants[key.tenant] = map[rateKey]*bucket{}
	}
	r.tenants[key.tenant][key] = b
	r.kept++
}

// largest returns the tenant that has the most buckets among a few taken at random, as the
// iteration over a map begins at random.
func (r *rates) largest() (most string) {
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

// evict drops the bucket of a tenant that is full first, among a few taken at random: a full one
// can be made again, and of another one the fewest tokens come too early.
func (r *rates) evict(tenant string, now time.Time) {
	var victim rateKey
	soonest, seen := time.Duration(math.MaxInt64), 0
	for key, b := range r.tenants[tenant] {
		if rest := b.untilFull(now); seen == 0 || rest < soonest {
			victim, soonest = key, rest
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

// untilFull returns in what time the bucket is full, if nothing is taken: the longest time if
// somebody waits for its next token.
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

// look returns how many tokens there are, and when there is one.
func (r *rates) look(key rateKey, perSecond float64, now time.Time) (int, time.Time) {
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

// take takes tokens, which may leave less than none; fewer than none are given back.
func (r *rates) take(key rateKey, perSecond float64, now time.Time, n int) {
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

// pace returns how many tokens come at a time, and after what time the next ones do.
func (r *rates) pace(perSecond float64) (int, time.Duration) {
	share := perSecond / float64(r.nodes())
	n := max(1, int(share*paceTime.Seconds()))
	return n, time.Duration(float64(n) / share * float64(time.Second))
}

// paceTime is the least time between two looks at a flow key.
const paceTime = 20 * time.Millisecond

// after calls do once after a time; not if that is under way for the key.
func (r *rates) after(key rateKey, d time.Duration, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.tenants[key.tenant][key]
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
