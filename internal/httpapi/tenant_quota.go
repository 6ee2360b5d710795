package httpapi

import (
	"context"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// GetQuota returns the quotas of the caller's tenant.
func (s *Server) GetQuota(
	ctx context.Context, _ GetQuotaRequestObject,
) (GetQuotaResponseObject, error) {
	t, err := s.cfg.Store.Tenant(ctx, principalOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	data, err := QuotaUsageOf(ctx, s.cfg.Store, t)
	return GetQuota200JSONResponse{Data: data}, err
}

// QuotaUsageOf returns the quotas that apply to a tenant, and how much of each is in use.
func QuotaUsageOf(
	ctx context.Context, st *store.Store, t store.StoredTenant,
) ([]api.QuotaUsage, error) {
	used, err := st.TenantUsage(ctx, t.Slug)
	if err != nil {
		return nil, err
	}
	applies := st.QuotasOf(t)
	out := make([]api.QuotaUsage, 0, len(used)+1)
	for _, name := range asyncflow.QuotaNames() {
		u := api.QuotaUsage{Name: name, Limit: applies.Get(name), Own: t.Own.Get(name) != 0}
		if n, ok := used[name]; ok {
			u.Used = &n
		}
		out = append(out, u)
	}
	return out, nil
}

// quotaChangesIn returns the quotas that a call names. Names and values are as in the contract,
// so that no quota can be left out here.
func quotaChangesIn(in api.QuotaChanges) (all map[asyncflow.QuotaName]float64, err error) {
	text, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}
