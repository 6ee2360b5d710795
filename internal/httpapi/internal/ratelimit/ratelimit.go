// Package ratelimit limits how many tasks each tenant submits per second, by a token bucket for
// each tenant.
package ratelimit

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// burstTime sets the size of a bucket: the tasks of this time at the tenant's rate. A tenant that
// has submitted nothing for as long may submit that many at once.
const burstTime = 2 * time.Second

// Tenants has the bucket of each tenant. It is safe for concurrent use. The zero value is ready
// to use.
type Tenants struct {
	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

// Allowance is how a tenant stands with its rate.
type Allowance struct {
	Burst, Left int           // the size of the bucket, and the tasks left in it
	Window      time.Duration // in which an empty bucket becomes full
	Reset       time.Duration // in which the bucket becomes full from now
}

// Take takes n tasks of a tenant whose rate is perSecond. It takes all of them or none; when it
// takes none, wait is the time until it would take them. A batch larger than the bucket is taken
// when the bucket is full; the tenant then waits until the rate has made up for it.
func (t *Tenants) Take(
	tenant string, perSecond float64, n int, now time.Time,
) (a Allowance, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	burst := max(1, int(math.Ceil(perSecond*burstTime.Seconds())))
	bucket := t.bucket(tenant, rate.Limit(perSecond), burst, now)
	if missing := float64(min(n, burst)) - bucket.TokensAt(now); missing > 0 {
		wait = max(time.Millisecond, seconds(missing/perSecond))
	} else {
		for rest := n; rest > 0; rest -= burst {
			bucket.ReserveN(now, min(rest, burst))
		}
	}
	tokens := bucket.TokensAt(now)
	return Allowance{
		Burst:  burst,
		Left:   max(0, int(tokens)),
		Window: seconds(float64(burst) / perSecond),
		Reset:  seconds((float64(burst) - tokens) / perSecond),
	}, wait
}

// bucket returns a tenant's bucket with the given rate and size.
func (t *Tenants) bucket(
	tenant string, limit rate.Limit, burst int, now time.Time,
) *rate.Limiter {
	b := t.buckets[tenant]
	if b == nil {
		if t.buckets == nil {
			t.buckets = map[string]*rate.Limiter{}
		}
		b = rate.NewLimiter(limit, burst)
		t.buckets[tenant] = b
	}
	if b.Limit() != limit || b.Burst() != burst {
		b.SetLimitAt(now, limit)
		b.SetBurstAt(now, burst)
	}
	return b
}

// Headers returns the values of RateLimit-Policy and RateLimit as in
// draft-ietf-httpapi-ratelimit-headers: a tenant may submit q tasks in w seconds; r are left, and
// all of them are available again in t seconds.
func (a Allowance) Headers() (policy, limit string) {
	return fmt.Sprintf(`"submits";q=%d;w=%d`, a.Burst, WholeSeconds(a.Window)),
		fmt.Sprintf(`"submits";r=%d;t=%d`, a.Left, int(math.Ceil(a.Reset.Seconds())))
}

// WholeSeconds returns a duration in seconds, rounded up, and at least 1.
func WholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
