package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
	"github.com/asyncflow/asyncflow/store"
)

// limitSubmits refuses submits of a tenant that is over its quota submits_per_second, and makes the
// answer say how the tenant stands. A node gives each tenant its share: the quota divided by the
// number of nodes that take requests. Children count like tasks that are submitted, as far as they
// are known now.
func (s *Server) limitSubmits(ctx context.Context, tasks ...asyncflow.NewTask) error {
	tenant := principalOf(ctx).Tenant
	t, ok := s.cfg.Store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.SubmitsPerSecond == 0 || len(tasks) == 0 {
		return nil
	}
	n := 0
	for i := range tasks {
		n += s.countNew(t, &tasks[i])
	}
	return s.takeSubmits(ctx, t, n)
}

// takeSubmits refuses n submits of a tenant that is over its quota.
func (s *Server) takeSubmits(ctx context.Context, t *store.Tenant, n int) error {
	perSecond := t.Quotas.SubmitsPerSecond / float64(s.cfg.Store.APINodes())
	allowance, wait := s.submitRates.Take(t.Slug, perSecond, n, time.Now())
	headersOf(ctx).allowance = &allowance
	if wait == 0 {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("the tenant's quota submits_per_second is %g; try again in %d s",
			t.Quotas.SubmitsPerSecond, ratelimit.WholeSeconds(wait))}
}

// giveBackChildren gives the tenant back what limitSubmits took for the children of tasks that were
// not submitted, or had been before.
func (s *Server) giveBackChildren(
	ctx context.Context, tasks []asyncflow.NewTask, submitted []store.Submitted,
) {
	tenant := principalOf(ctx).Tenant
	t, ok := s.cfg.Store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.SubmitsPerSecond == 0 {
		return
	}
	n := 0
	for i := range submitted {
		r := &submitted[i]
		if r.Err != nil || r.Existing && !r.Replaced { // a replaced context makes its children
			n += s.countNew(t, &tasks[i]) - 1
		}
	}
	s.submitRates.Give(tenant, n)
}

func (s *Server) countNew(tenant *store.Tenant, task *asyncflow.NewTask) int {
	t, err := s.cfg.Store.Catalog.Type(tenant.Slug, task.Type)
	if err != nil {
		return 1
	}
	return t.CountNew(task.Context, tenant.Quotas.MostChildren())
}

// chargesEvery is how often a node charges tenants for tasks that they didn't submit over HTTP.
const chargesEvery = time.Second

// followCharges charges tenants for such tasks until ctx ends. What was counted before it begins is
// not charged.
func (s *Server) followCharges(ctx context.Context) {
	ticker := time.NewTicker(chargesEvery)
	defer ticker.Stop()
	var charged map[string]int64 // totals, by tenant
	for {
		if s.limitsSubmits() {
			charged = s.charge(ctx, charged)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// limitsSubmits reports whether there is a quota of submits for a tenant.
func (s *Server) limitsSubmits() bool {
	for slug := range s.cfg.Store.Catalog.Tenants() {
		if t, ok := s.cfg.Store.Catalog.Tenant(slug); ok && t.Quotas.SubmitsPerSecond > 0 {
			return true
		}
	}
	return false
}

// charge charges tenants this node's share of what was counted since the given totals, and returns
// the totals now. nil: none were read yet.
func (s *Server) charge(ctx context.Context, charged map[string]int64) map[string]int64 {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	totals, err := s.cfg.Store.SubmitCharges(ctx)
	if err != nil {
		s.log.Warn("can't read what counts as submitted, trying again", "error", err)
		return charged
	}
	if charged == nil {
		return totals
	}
	nodes := float64(s.cfg.Store.APINodes())
	for slug, total := range totals {
		t, ok := s.cfg.Store.Catalog.Tenant(slug)
		if n := total - charged[slug]; ok && t.Quotas.SubmitsPerSecond > 0 && n > 0 {
			s.submitRates.Charge(slug, t.Quotas.SubmitsPerSecond/nodes, float64(n)/nodes,
				time.Now())
		}
	}
	return totals
}
