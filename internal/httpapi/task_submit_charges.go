package httpapi

import (
	"context"
	"time"
)

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

// limitsSubmits reports whether a tenant has a quota of submits.
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
			s.submitRates.Charge(slug, t.Quotas.SubmitsPerSecond/nodes, float64(n)/nodes, time.Now())
		}
	}
	return totals
}
