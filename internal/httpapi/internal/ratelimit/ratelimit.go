// Package ratelimit limits how many tasks each tenant submits per second, by a token bucket for
// each tenant.
package ratelimit

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// burstTime sets the size of a bucket: the tasks of this time at the tenant's rate. A tenant that
// submitted nothing for as long may submit that many at once.
const burstTime = 2 * time.Second

// maxDebt is for how long a tenant waits at most after it took more tasks than a bucket holds.
const maxDebt = time.Hour

// Tenants holds the bucket of each tenant. It is safe for concurrent use. The zero value is ready
// to use.
type Tenants struct {
	mu      sync.Mutex
	buckets map[string]*bucket
}

// bucket counts the tasks that a tenant may submit now. It is negative while the rate makes up for
// a batch that was larger than the bucket: rate.Limiter of x/time can't be taken from so.
type bucket struct {
	left      float64
	at        time.Time // when left was right
	perSecond float64
	burst     int
}

// Allowance is how a tenant stands with its rate.
type Allowance struct {
	Burst, Left int           // the size of the bucket, and the tasks left in it
	Window      time.Duration // in which an empty bucket becomes full
	Reset       time.Duration // in which the bucket becomes full from now
}

// Take takes n tasks of a tenant with the rate perSecond. It takes all of them or none; when it
// takes none, wait is the time until it would take them. A batch larger than the bucket is taken
// when the bucket is full; the tenant then waits until the rate makes up for it, up to maxDebt.
func (t *Tenants) Take(
	tenant string, perSecond float64, n int, now time.Time,
) (a Allowance, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucket(tenant, perSecond, now)
	if missing := float64(min(n, b.burst)) - b.left; missing > 0 {
		wait = max(time.Millisecond, seconds(missing/perSecond))
	} else {
		b.left = max(b.left-float64(max(0, n)), -perSecond*maxDebt.Seconds())
	}
	return Allowance{
		Burst:  b.burst,
		Left:   max(0, int(b.left)),
		Window: seconds(float64(b.burst) / perSecond),
		Reset:  seconds((float64(b.burst) - b.left) / perSecond),
	}, wait
}

// Charge takes n tasks that the tenant made without asking: it waits until the rate makes up for
// them, up to maxDebt.
func (t *Tenants) Charge(tenant string, perSecond, n float64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucket(tenant, perSecond, now)
	b.left = max(b.left-max(0, n), -perSecond*maxDebt.Seconds())
}

// Give gives back n tasks that a tenant took and that were not submitted.
func (t *Tenants) Give(tenant string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.buckets[tenant]; b != nil {
		b.left = min(b.left+float64(n), float64(b.burst))
	}
}

// bucket returns a tenant's bucket, filled until now, with the given rate from now on.
func (t *Tenants) bucket(tenant string, perSecond float64, now time.Time) *bucket {
	burst := max(1, int(math.Ceil(perSecond*burstTime.Seconds())))
	b := t.buckets[tenant]
	if b == nil {
		if t.buckets == nil {
			t.buckets = map[string]*bucket{}
		}
		b = &bucket{left: float64(burst), at: now}
		t.buckets[tenant] = b
	}
	if passed := now.Sub(b.at); passed > 0 {
		b.left += passed.Seconds() * b.perSecond
		b.at = now
	}
	b.left = min(b.left, float64(burst))
	b.perSecond, b.burst = perSecond, burst
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
