package httpapi

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// CreateTenant makes a tenant.
func (s *Server) CreateTenant(ctx context.Context, r CreateTenantRequestObject) (CreateTenantResponseObject, error) {
	if err := r.Body.Quotas.Validate(); err != nil {
		return nil, err
	}
	t, err := s.cfg.Store.CreateTenant(ctx, r.Body.Slug, r.Body.Quotas)
	if err != nil {
		return nil, err
	}
	s.logTenant(ctx, "tenant created", t)
	return CreateTenant201JSONResponse(TenantOut(t)), nil
}

// ListTenants lists a page of tenants.
func (s *Server) ListTenants(ctx context.Context, r ListTenantsRequestObject) (ListTenantsResponseObject, error) {
	limit := r.Params.Limit
	if limit == 0 {
		limit = defaultPage
	}
	after, err := base64.RawURLEncoding.DecodeString(r.Params.Cursor)
	if err != nil || len(after) > 0 && asyncflow.CheckName(string(after)) != nil {
		return nil, badCursor()
	}
	page, more, err := s.cfg.Store.TenantPage(ctx, string(after), limit)
	if err != nil {
		return nil, err
	}
	out := ListTenants200JSONResponse{Data: make([]Tenant, len(page))}
	for i, t := range page {
		out.Data[i] = TenantOut(t)
	}
	if more {
		out.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(page[len(page)-1].Slug))
	}
	return out, nil
}

// GetTenant returns a tenant with what it uses.
func (s *Server) GetTenant(ctx context.Context, r GetTenantRequestObject) (GetTenantResponseObject, error) {
	t, err := s.cfg.Store.Tenant(ctx, r.Slug)
	if err != nil {
		return nil, err
	}
	out := TenantOut(t)
	out.Usage, err = QuotaUsageOf(ctx, s.cfg.Store, t)
	return GetTenant200JSONResponse(out), err
}

// PatchTenant changes a tenant's quotas, suspends or resumes it.
func (s *Server) PatchTenant(ctx context.Context, r PatchTenantRequestObject) (PatchTenantResponseObject, error) {
	if r.Body.Reason != "" && (r.Body.Suspended == nil || !*r.Body.Suspended) {
		return nil, asyncflow.InvalidField("reason", "is that of a suspension: it needs suspended to be true")
	}
	t, err := s.cfg.Store.PatchTenant(ctx, r.Slug, store.TenantPatch{Quotas: quotaChangesIn(r.Body.Quotas),
		Suspend: r.Body.Suspended, Reason: callbacks.Clean(r.Body.Reason, asyncflow.MaxReasonLength)})
	if err != nil {
		return nil, err
	}
	s.logTenant(ctx, "tenant changed", t)
	return PatchTenant200JSONResponse(TenantOut(t)), nil
}

// DeleteTenant suspends a tenant and has it dropped later.
func (s *Server) DeleteTenant(ctx context.Context, r DeleteTenantRequestObject) (DeleteTenantResponseObject, error) {
	grace, err := readGrace(r.Params)
	if err != nil {
		return nil, err
	}
	t, err := s.cfg.Store.DeleteTenant(ctx, r.Slug, grace)
	if err != nil {
		return nil, err
	}
	s.logTenant(ctx, "tenant deleted", t)
	return DeleteTenant202JSONResponse(TenantOut(t)), nil
}

// readGrace reads how long a deleted tenant is kept; nil: as long as usual.
func readGrace(p DeleteTenantParams) (*time.Duration, error) {
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

// RestoreTenant takes a deletion back.
func (s *Server) RestoreTenant(ctx context.Context, r RestoreTenantRequestObject) (RestoreTenantResponseObject, error) {
	t, err := s.cfg.Store.RestoreTenant(ctx, r.Slug)
	if err != nil {
		return nil, err
	}
	s.logTenant(ctx, "tenant restored", t)
	return RestoreTenant200JSONResponse(TenantOut(t)), nil
}

// GetQuota shows a tenant its own quotas.
func (s *Server) GetQuota(ctx context.Context, _ GetQuotaRequestObject) (GetQuotaResponseObject, error) {
	t, err := s.cfg.Store.Tenant(ctx, principalOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	data, err := QuotaUsageOf(ctx, s.cfg.Store, t)
	return GetQuota200JSONResponse{Data: data}, err
}

func (s *Server) logTenant(ctx context.Context, what string, t store.StoredTenant) {
	s.log.Info(what, "tenant", t.Slug, "by", principalOf(ctx).Subject, "state", string(t.State()), "reason", t.SuspendReason, "drop_at", t.DropAt, "quotas", t.Own)
}

// TenantOut returns the document of a tenant, without its usage.
func TenantOut(t store.StoredTenant) Tenant {
	return Tenant{Slug: t.Slug, State: t.State(), SuspendedAt: t.SuspendedAt, Reason: t.SuspendReason, DeletedAt: t.DeletedAt,
		DropAt: t.DropAt, Quotas: t.Own, CreatedAt: t.CreatedAt}
}

// QuotaUsageOf returns what applies to a tenant, and how much of it is in use.
func QuotaUsageOf(ctx context.Context, st *store.Store, t store.StoredTenant) ([]QuotaUsage, error) {
	used, err := st.TenantUsage(ctx, t.Slug)
	if err != nil {
		return nil, err
	}
	applies := st.QuotasOf(t)
	out := make([]QuotaUsage, 0, len(used)+1)
	for _, name := range asyncflow.QuotaNames() {
		u := QuotaUsage{Name: name, Limit: applies.Get(name), Own: t.Own.Get(name) != 0}
		if n, ok := used[name]; ok {
			u.Used = &n
		}
		out = append(out, u)
	}
	return out, nil
}

func quotaChangesIn(in QuotaChanges) map[asyncflow.QuotaName]float64 {
	all := map[asyncflow.QuotaName]float64{}
	for name, value := range map[asyncflow.QuotaName]*int64{asyncflow.QuotaTaskTypes: in.TaskTypes, asyncflow.QuotaEndpoints: in.Endpoints,
		asyncflow.QuotaSchedules: in.Schedules, asyncflow.QuotaConfigurationBytes: in.ConfigurationBytes, asyncflow.QuotaPendingTasks: in.PendingTasks,
		asyncflow.QuotaContextBytes: in.ContextBytes, asyncflow.QuotaConcurrency: in.Concurrency} {
		if value != nil {
			all[name] = float64(*value)
		}
	}
	for name, value := range map[asyncflow.QuotaName]*float64{asyncflow.QuotaSubmitsPerSecond: in.SubmitsPerSecond,
		asyncflow.QuotaDeliveriesPerSecond: in.DeliveriesPerSecond} {
		if value != nil {
			all[name] = *value
		}
	}
	return all
}
