package httpapi

import (
	"context"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
)

// contextQuota returns the quota for contexts of the caller's tenant, in bytes. It is 0 if the
// quota isn't below the node's own limit.
func (s *Server) contextQuota(ctx context.Context) int {
	t, ok := s.cfg.Store.Catalog.Tenant(principalOf(ctx).Tenant)
	if !ok || t.Quotas.ContextBytes >= int64(s.cfg.MaxContext) {
		return 0
	}
	return int(t.Quotas.ContextBytes)
}

// checkContext refuses a context that is over a quota in bytes; 0: no quota.
func checkContext(doc json.RawMessage, quota int) error {
	if quota > 0 && len(doc) > quota {
		return asyncflow.ContextOverQuota(quota, len(doc))
	}
	return nil
}
