package httpapi

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// ListAudit lists who did what in the tenant.
func (s *Server) ListAudit(ctx context.Context, r ListAuditRequestObject) (ListAuditResponseObject, error) {
	page, err := s.auditPage(ctx, principalOf(ctx).Tenant, r.Params)
	return ListAudit200JSONResponse(page), err
}

// ListOperatorAudit lists who did what that belongs to no tenant.
func (s *Server) ListOperatorAudit(ctx context.Context, r ListOperatorAuditRequestObject) (ListOperatorAuditResponseObject, error) {
	page, err := s.auditPage(ctx, "", ListAuditParams(r.Params))
	return ListOperatorAudit200JSONResponse(page), err
}

// auditPage returns a page of the audit of a tenant or (tenant "") of the operator.
func (s *Server) auditPage(ctx context.Context, tenant string, p ListAuditParams) (AuditList, error) {
	f := store.AuditFilter{Tenant: tenant, Since: p.Since, Until: p.Until, Action: p.Action, Subject: p.Subject,
		Outcome: asyncflow.AuditOutcome(p.Outcome), Limit: p.Limit}
	if f.Limit == 0 {
		f.Limit = defaultPage
	}
	var err error
	if f.Before, err = readAuditCursor(p.Cursor); err != nil {
		return AuditList{}, err
	}
	entries, err := s.cfg.Store.Audit(ctx, f)
	if err != nil {
		return AuditList{}, err
	}
	out := AuditList{Data: make([]AuditEntry, len(entries))}
	for i, e := range entries {
		out.Data[i] = auditOut(e)
	}
	if n := len(entries); n == f.Limit {
		out.NextCursor = writeAuditCursor(entries[n-1])
	}
	return out, nil
}

// A cursor is the time and the id of the entry that a page ended at.
func writeAuditCursor(e asyncflow.AuditEntry) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(e.At.UnixMicro(), 36) + " " + e.ID))
}

func readAuditCursor(cursor string) (store.AuditPlace, error) {
	if cursor == "" {
		return store.AuditPlace{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	at, id, _ := strings.Cut(string(raw), " ")
	micros, err2 := strconv.ParseInt(at, 36, 64)
	parsed, err3 := uuid.Parse(id)
	if err != nil || err2 != nil || err3 != nil || micros <= 0 || micros > maxMicros {
		return store.AuditPlace{}, badCursor()
	}
	return store.AuditPlace{At: time.UnixMicro(micros).UTC(), ID: parsed.String()}, nil
}

// maxMicros is a time, in microseconds, that Postgres can still tell: in the year 9999.
var maxMicros = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func auditOut(e asyncflow.AuditEntry) AuditEntry {
	return AuditEntry{ID: e.ID, At: e.At, Origin: AuditEntryOrigin(e.Origin), Tenant: e.Tenant, Subject: e.Subject, TokenID: e.TokenID,
		Issuer: e.Issuer, Scopes: e.Scopes, Action: e.Action, ObjectType: e.ObjectType, Object: e.Object, Address: e.Address, Proxy: e.Proxy,
		RequestID: e.RequestID, UserAgent: e.UserAgent, Outcome: AuditOutcome(e.Outcome), Status: e.Status, Code: e.Code, Detail: e.Detail,
		Claimed: AuditClaim{Issuer: e.Claimed.Issuer, Subject: e.Claimed.Subject, Tenant: e.Claimed.Tenant, TokenID: e.Claimed.TokenID},
		Calls:   e.Calls, LastAt: e.LastAt}
}
