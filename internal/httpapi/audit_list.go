package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/store"
)

// ListAudit lists a page of the tenant's audit.
func (s *Server) ListAudit(
	ctx context.Context, r ListAuditRequestObject,
) (ListAuditResponseObject, error) {
	page, err := s.auditPage(ctx, principalOf(ctx).Tenant, r.Params)
	return ListAudit200JSONResponse(page), err
}

// ListOperatorAudit lists a page of the operator's audit, which has what belongs to no tenant.
func (s *Server) ListOperatorAudit(
	ctx context.Context, r ListOperatorAuditRequestObject,
) (ListOperatorAuditResponseObject, error) {
	page, err := s.auditPage(ctx, "", api.ListAuditParams(r.Params))
	return ListOperatorAudit200JSONResponse(page), err
}

// auditPage returns a page of the audit of a tenant or (tenant "") of the operator.
func (s *Server) auditPage(
	ctx context.Context, tenant string, p api.ListAuditParams,
) (api.AuditList, error) {
	f := store.AuditFilter{
		Tenant:  tenant,
		Since:   p.Since,
		Until:   p.Until,
		Action:  p.Action,
		Subject: p.Subject,
		Outcome: asyncflow.AuditOutcome(p.Outcome),
		Limit:   orDefaultPage(p.Limit),
	}
	list := cursor.Of("audit of "+tenant, p)
	before, err := list.ReadPlace(p.Cursor)
	if err != nil {
		return api.AuditList{}, err
	}
	f.Before = store.AuditPlace(before)
	entries, err := s.cfg.Store.Audit(ctx, f)
	if err != nil {
		return api.AuditList{}, err
	}
	out := api.AuditList{Data: make([]api.AuditEntry, len(entries))}
	for i, e := range entries {
		out.Data[i] = auditOut(e)
		more := len(entries) == f.Limit
		out.NextCursor = list.Write(more, cursor.PlaceKey(store.Place{At: e.At, ID: e.ID})...)
	}
	return out, nil
}

func auditOut(e asyncflow.AuditEntry) api.AuditEntry {
	return api.AuditEntry{
		ID:         e.ID,
		At:         e.At,
		Origin:     api.AuditEntryOrigin(e.Origin),
		Tenant:     e.Tenant,
		Subject:    e.Subject,
		TokenID:    e.TokenID,
		Issuer:     e.Issuer,
		Scopes:     e.Scopes,
		Action:     e.Action,
		ObjectType: e.ObjectType,
		Object:     e.Object,
		Address:    e.Address,
		Proxy:      e.Proxy,
		RequestID:  e.RequestID,
		UserAgent:  e.UserAgent,
		Outcome:    api.AuditOutcome(e.Outcome),
		Status:     e.Status,
		Code:       e.Code,
		Detail:     e.Detail,
		Claimed: api.AuditClaim{
			Issuer:  e.Claimed.Issuer,
			Subject: e.Claimed.Subject,
			Tenant:  e.Claimed.Tenant,
			TokenID: e.Claimed.TokenID,
		},
		Calls:  e.Calls,
		LastAt: e.LastAt,
	}
}
