package dispatcher

import (
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
	buckets map[rateKey]*bucket
	most    int // buckets, until some are looked for that can go
}

// rateKey names what has a rate: a tenant, an endpoint, a type, or a flow key of a type.
type rateKey struct{ tenant, of, name string }

type bucket struct {
	*rate.Limiter
	waiting bool // somebody is told when it has a token
}

// maxBuckets is how many are kept before those are dropped that are full, as they can be
// made again.
const maxBuckets = 20_000

const burstTime = 100 * time.Millisecond

// joiningPause is the time between two looks for tokens on a node that has no share yet.
const joiningPause = 100 * time.Millisecond

func newRates(nodes func() int, joining func() bool) *rates {
	return &rates{nodes: nodes, joining: joining, buckets: map[rateKey]*bucket{}, most: maxBuckets}
}

// bucket returns the bucket of a key. r.mu is held.
func (r *rates) bucket(key rateKey, perSecond float64, now time.Time) *bucket {
	share := perSecond / float64(r.nodes())
	burst := max(1, int(share*burstTime.Seconds()))
	if r.joining() {
		share, burst = 0, 0
	}
	b := r.buckets[key]
	switch {
	case b == nil:
		if len(r.buckets) >= r.most {
			r.tidy(now)
		}
		b = &bucket{Limiter: rate.NewLimiter(rate.Limit(share), burst)}
		r.buckets[key] = b
	case b.Limit() != rate.Limit(share): // it was changed, or the nodes have
		b.SetLimitAt(now, rate.Limit(share))
		b.SetBurstAt(now, burst)
	}
	return b
}

// tidy drops the buckets that are full. r.mu is held.
func (r *rates) tidy(now time.Time) {
	for key, b := range r.buckets {
		if !b.waiting && b.TokensAt(now) >= float64(b.Burst()) {
			delete(r.buckets, key)
		}
	}
	r.most = max(maxBuckets, 2*len(r.buckets)) // else each new one would look through all
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
	b := r.buckets[key]
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
