package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
)

// limitSubmits refuses n submits of a tenant that is over its quota submits_per_second, and has
// the answer say how the tenant stands. A node gives each tenant its share: the quota divided by
// the number of nodes that take requests.
func (s *Server) limitSubmits(ctx context.Context, n int) error {
	tenant := principalOf(ctx).Tenant
	t, ok := s.cfg.Store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.SubmitsPerSecond == 0 || n == 0 {
		return nil
	}
	perSecond := t.Quotas.SubmitsPerSecond / float64(s.cfg.Store.APINodes())
	allowance, wait := s.submitRates.Take(tenant, perSecond, n, time.Now())
	headersOf(ctx).allowance = &allowance
	if wait == 0 {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("the tenant's quota submits_per_second is %g; try again in %d s",
			t.Quotas.SubmitsPerSecond, ratelimit.WholeSeconds(wait))}
}
