package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
)

// limitSubmits refuses submits of a tenant that is over its quota submits_per_second, and has
// the answer say how the tenant stands. A node gives each tenant its share: the quota divided by
// the number of nodes that take requests. Children count like tasks that are submitted, as far as
// they are known now.
func (s *Server) limitSubmits(ctx context.Context, tasks ...asyncflow.NewTask) error {
	tenant := principalOf(ctx).Tenant
	t, ok := s.cfg.Store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.SubmitsPerSecond == 0 || len(tasks) == 0 {
		return nil
	}
	n := 0
	for i := range tasks {
		n += s.countNew(tenant, &tasks[i])
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

func (s *Server) countNew(tenant string, task *asyncflow.NewTask) int {
	t, err := s.cfg.Store.Catalog.Type(tenant, task.Type)
	if err != nil {
		return 1
	}
	return t.CountNew(task.Context)
}
