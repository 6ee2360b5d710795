package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"

	"github.com/asyncflow/asyncflow"
)

// burstTime is for how long a tenant that has submitted nothing for a while may submit at
// any rate: the tasks of that time.
const burstTime = 2 * time.Second

// throttles hold the submits of tenants to their quotas. Each node gives a tenant its
// share: the quota divided by the nodes that take requests.
type throttles struct {
	mu      sync.Mutex
	tenants map[string]*rate.Limiter
}

// allowance is where a tenant stands with its quota of submits, as headers tell it.
type allowance struct {
	burst, left   int
	window, reset time.Duration // until an empty burst is full again, and the present one
}

// take takes n submits of a tenant with a share of a second. It takes all of them or
// none: then wait says when there is room. More than the burst are taken when that is
// full, and what is over is made up for by a longer wait afterwards.
func (t *throttles) take(tenant string, share float64, n int, now time.Time) (a allowance, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	burst := max(1, int(math.Ceil(share*burstTime.Seconds())))
	l := t.tenants[tenant]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(share), burst)
		t.tenants[tenant] = l
	}
	if l.Limit() != rate.Limit(share) || l.Burst() != burst {
		l.SetLimitAt(now, rate.Limit(share))
		l.SetBurstAt(now, burst)
	}
	if missing := float64(min(n, burst)) - l.TokensAt(now); missing > 0 {
		wait = max(time.Millisecond, seconds(missing/share))
	} else {
		for rest := n; rest > 0; rest -= burst {
			l.ReserveN(now, min(rest, burst))
		}
	}
	tokens := l.TokensAt(now)
	return allowance{burst: burst, left: max(0, int(tokens)), window: seconds(float64(burst) / share), reset: seconds((float64(burst) - tokens) / share)}, wait
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// throttle refuses n submits of a tenant that is over its quota of them, and has the
// answer tell where it stands.
func (s *Server) throttle(ctx context.Context, n int) error {
	tenant := principalOf(ctx).Tenant
	t, ok := s.cfg.Store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.SubmitsPerSecond == 0 || n == 0 {
		return nil
	}
	a, wait := s.throttles.take(tenant, t.Quotas.SubmitsPerSecond/float64(s.cfg.Store.APINodes()), n, time.Now())
	headersOf(ctx).allowance = &a
	if wait == 0 {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("the tenant's quota submits_per_second is %g; try again in %d s", t.Quotas.SubmitsPerSecond, wholeSeconds(wait))}
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// contextQuota returns the quota of contexts of the caller's tenant in bytes; 0: there is
// none below what the node takes of anybody.
func (s *Server) contextQuota(ctx context.Context) int {
	t, ok := s.cfg.Store.Catalog.Tenant(principalOf(ctx).Tenant)
	if !ok || t.Quotas.ContextBytes >= int64(s.cfg.MaxContext) {
		return 0
	}
	return int(t.Quotas.ContextBytes)
}

// checkContext tells that a context is over a quota.
func checkContext(doc json.RawMessage, quota int) error {
	if quota > 0 && len(doc) > quota {
		return asyncflow.ContextOverQuota(quota, len(doc))
	}
	return nil
}

// answerHeaders are what a handler adds to its answer, whatever that is.
type answerHeaders struct{ allowance *allowance }

type answerHeadersKey struct{}

func headersOf(ctx context.Context) *answerHeaders {
	if h, ok := ctx.Value(answerHeadersKey{}).(*answerHeaders); ok {
		return h
	}
	return &answerHeaders{}
}

// write sets the headers of draft-ietf-httpapi-ratelimit-headers: q tasks are allowed in
// w seconds, r are left, and in t seconds all of them are there again.
func (h *answerHeaders) write(c *fiber.Ctx) {
	if a := h.allowance; a != nil {
		c.Set("RateLimit-Policy", fmt.Sprintf(`"submits";q=%d;w=%d`, a.burst, wholeSeconds(a.window)))
		c.Set("RateLimit", fmt.Sprintf(`"submits";r=%d;t=%d`, a.left, int(math.Ceil(a.reset.Seconds()))))
	}
}
