package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/store"
)

// CreateTenant creates a tenant.
func (s *Server) CreateTenant(
	ctx context.Context, r CreateTenantRequestObject,
) (CreateTenantResponseObject, error) {
	if err := r.Body.Quotas.Validate(); err != nil {
		return nil, err
	}
	t, err := s.cfg.Store.CreateTenant(ctx, r.Body.Slug, r.Body.Quotas)
	if err != nil {
		return nil, err
	}
	return CreateTenant201JSONResponse(s.changedTenant(ctx, "tenant created", t)), nil
}

// ListTenants lists a page of tenants by name, or the tenants in trouble.
func (s *Server) ListTenants(
	ctx context.Context, r ListTenantsRequestObject,
) (ListTenantsResponseObject, error) {
	list := cursor.Of("tenants", r.Params)
	after, err := list.ReadName(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	limit := orDefaultPage(r.Params.Limit)
	if r.Params.Order == api.ListTenantsParamsOrderTrouble {
		worst, err := TroubledTenants(ctx, s.cfg.Store, limit)
		return ListTenants200JSONResponse(worst), err
	}
	page, more, err := s.cfg.Store.TenantPage(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	out := ListTenants200JSONResponse{}
	if n := len(page); n > 0 {
		out.NextCursor = list.Write(more, page[n-1].Slug)
	}
	out.Data, err = TenantsOut(ctx, s.cfg.Store, page...)
	return out, err
}

// GetTenant returns a tenant with its usage.
func (s *Server) GetTenant(
	ctx context.Context, r GetTenantRequestObject,
) (GetTenantResponseObject, error) {
	t, err := s.cfg.Store.Tenant(ctx, r.Slug)
	if err != nil {
		return nil, err
	}
	setETag(ctx, t.ETag())
	out, err := TenantsOut(ctx, s.cfg.Store, t)
	if err != nil {
		return nil, err
	}
	out[0].Usage, err = QuotaUsageOf(ctx, s.cfg.Store, t)
	return GetTenant200JSONResponse(out[0]), err
}

// PatchTenant changes the quotas of a tenant, and suspends or resumes it.
func (s *Server) PatchTenant(
	ctx context.Context, r PatchTenantRequestObject,
) (PatchTenantResponseObject, error) {
	if r.Body.Reason != "" && (r.Body.Suspended == nil || !*r.Body.Suspended) {
		return nil, asyncflow.InvalidField("reason",
			"is that of a suspension: it needs suspended to be true")
	}
	quotas, err := quotaChangesIn(r.Body.Quotas)
	if err != nil {
		return nil, err
	}
	t, err := s.cfg.Store.PatchTenant(withPrecondition(ctx), r.Slug, store.TenantPatch{
		Quotas:  quotas,
		Suspend: r.Body.Suspended,
		Reason:  callbacks.Clean(r.Body.Reason, asyncflow.MaxReasonLength),
	})
	if err != nil {
		return nil, err
	}
	s.cfg.Committer.QuiesceTenant(ctx, r.Slug)
	return PatchTenant200JSONResponse(s.changedTenant(ctx, "tenant changed", t)), nil
}

// DeleteTenant suspends a tenant. The tenant is dropped after a grace period.
func (s *Server) DeleteTenant(
	ctx context.Context, r DeleteTenantRequestObject,
) (DeleteTenantResponseObject, error) {
	grace, err := readGrace(r.Params)
	if err != nil {
		return nil, err
	}
	t, err := s.cfg.Store.DeleteTenant(withPrecondition(ctx), r.Slug, grace)
	if err != nil {
		return nil, err
	}
	s.cfg.Committer.QuiesceTenant(ctx, r.Slug)
	return DeleteTenant202JSONResponse(s.changedTenant(ctx, "tenant deleted", t)), nil
}

// readGrace parses the grace period of a deleted tenant; nil: the default.
func readGrace(p api.DeleteTenantParams) (*time.Duration, error) {
	var grace asyncflow.Duration
	switch {
	case p.Now && p.Grace != "":
		return nil, asyncflow.InvalidField("grace", "and now exclude each other")
	case p.Now:
		return new(time.Duration), nil
	case p.Grace == "":
		return nil, nil
	}
	if err := grace.UnmarshalText([]byte(p.Grace)); err != nil {
		return nil, asyncflow.InvalidField("grace", "%v", err)
	}
	d := grace.Std()
	return &d, asyncflow.CheckGrace(d)
}

// RestoreTenant undoes a deletion.
func (s *Server) RestoreTenant(
	ctx context.Context, r RestoreTenantRequestObject,
) (RestoreTenantResponseObject, error) {
	t, err := s.cfg.Store.RestoreTenant(ctx, r.Slug)
	if err != nil {
		return nil, err
	}
	return RestoreTenant200JSONResponse(s.changedTenant(ctx, "tenant restored", t)), nil
}

// changedTenant logs a change of a tenant, sets its ETag, and returns its document.
func (s *Server) changedTenant(
	ctx context.Context, message string, t store.StoredTenant,
) api.Tenant {
	s.log.Info(message, "tenant", t.Slug, "by", principalOf(ctx).Subject, "state",
		string(t.State()), "reason", t.SuspendReason, "drop_at", t.DropAt, "quotas", t.Own)
	setETag(ctx, t.ETag())
	return TenantOut(t)
}

// TenantOut returns the document of a tenant, without its usage.
func TenantOut(t store.StoredTenant) api.Tenant {
	return api.Tenant{
		Slug:        t.Slug,
		State:       t.State(),
		SuspendedAt: t.SuspendedAt,
		Reason:      t.SuspendReason,
		DeletedAt:   t.DeletedAt,
		DropAt:      t.DropAt,
		Quotas:      t.Own,
		CreatedAt:   t.CreatedAt,
	}
}

// TenantsOut returns the documents of tenants, with their places.
func TenantsOut(
	ctx context.Context, st *store.Store, tenants ...store.StoredTenant,
) ([]api.Tenant, error) {
	slugs := make([]string, len(tenants))
	out := make([]api.Tenant, len(tenants))
	for i, t := range tenants {
		slugs[i], out[i] = t.Slug, TenantOut(t)
	}
	places, err := st.Placements(ctx, slugs...)
	for i, slug := range slugs {
		if at, known := places[slug]; known {
			out[i].Placement = at.String()
		}
	}
	return out, err
}

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
