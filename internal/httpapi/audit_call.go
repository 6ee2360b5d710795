package httpapi

import (
	"cmp"
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/deniedcalls"
	"github.com/asyncflow/asyncflow/store"
)

// passAudited is pass for a call that always leaves an entry in the audit. A change writes its
// entry itself, in its transaction; passAudited writes the entry of every other result, before the
// answer. Denied calls get their entry from countDenied.
func (s *Server) passAudited(c *fiber.Ctx, o *contract.Operation, values map[string]string) error {
	call := store.NewAuditedCall("", s.entryOf(c, o))
	for _, value := range values { // there is one at most in a path
		call.Object = value
	}
	call.Status, call.StatusNew = o.Status, o.StatusNew
	err := recovered(func() error { return s.pass(c, o, values, call) })
	if call.MayStand() && asyncflow.CodeOf(err) == asyncflow.CodeUnavailable {
		err = uncertain(err)
	}
	if call.Written() {
		return err
	}
	call.Status = c.Response().StatusCode()
	if err != nil {
		known := knownError(err)
		call.Status, call.Code = statusOf[known.Code], string(known.Code)
	}
	call.Outcome = asyncflow.AuditOutcomeOf(call.Status)
	// A caller without a good token must not fill the audit.
	proven := principalOf(c.UserContext()).Kind != ""
	if proven && call.Outcome != asyncflow.AuditDenied {
		s.record(call)
	}
	return err
}

// uncertain returns the error of a change that stands, or may stand, though its call was not
// answered: the database went away during the commit, or before the answer was read.
func uncertain(err error) *asyncflow.Error {
	return &asyncflow.Error{Code: asyncflow.CodeUncertain, RetryAfter: time.Second, Err: err,
		Message: "the database went away: it is not known whether the change was made"}
}

// recordTime bounds the writing of an entry, which goes on when the call's own time is over.
const recordTime = 3 * time.Second

// record writes the entry of a call that changed nothing. If that fails, the entry goes to the log.
func (s *Server) record(call *store.AuditedCall) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	if err := s.cfg.Store.Record(ctx, call); err != nil {
		s.log.Error("can't write an entry of the audit",
			"tenant", call.Tenant,
			"subject", call.Subject,
			"action", call.Action,
			"object", call.Object,
			"address", call.Address,
			"status", call.Status,
			"request_id", call.RequestID,
			"error", err,
		)
	}
}

// entryOf returns what is known of a call without its credential.
func (s *Server) entryOf(c *fiber.Ctx, o *contract.Operation) asyncflow.AuditEntry {
	e := asyncflow.AuditEntry{
		Origin:     asyncflow.AuditFromAPI,
		Action:     o.Action,
		ObjectType: o.ObjectType,
		RequestID:  requestID(c),
		UserAgent:  asyncflow.AuditText(c.Get(fiber.HeaderUserAgent), asyncflow.MaxAuditText),
	}
	e.Address, e.Proxy = s.addressOf(c)
	return e
}

// withCall writes the proven caller into an audited call, and the tenant that gets the entry into
// its audit: calls for operators only belong to no tenant. The context that it returns carries the
// audited call.
func (s *Server) withCall(
	ctx context.Context, call *store.AuditedCall, o *contract.Operation,
) context.Context {
	p := principalOf(ctx)
	setCaller(&call.AuditEntry, p)
	if !o.OperatorsOnly() && s.cfg.Store.Catalog.HasTenant(p.Tenant) {
		call.Schema = p.Tenant
	}
	return store.WithAuditedCall(ctx, call)
}

// setCaller writes a proven caller into an entry.
func setCaller(e *asyncflow.AuditEntry, p auth.Principal) {
	e.Tenant, e.Subject, e.TokenID = p.Tenant, p.Subject, p.TokenID
	e.Issuer, e.Scopes = p.Issuer, p.Scopes.String()
}

// countDenied counts a call for the audit if it was denied. The call doesn't wait for the entry.
func (s *Server) countDenied(c *fiber.Ctx, o *contract.Operation, err error) {
	known := knownError(err)
	if asyncflow.AuditOutcomeOf(statusOf[known.Code]) != asyncflow.AuditDenied {
		return
	}
	p := principalOf(c.UserContext())
	tenant := cmp.Or(p.Tenant, completionOf(c.UserContext()).Tenant)
	address, _ := s.addressOf(c)
	key := deniedcalls.Key{
		Budget:  s.auditBudget(p, tenant),
		Issuer:  p.Issuer,
		Subject: p.Subject,
		Address: address,
		Action:  o.Action,
		Reason:  known.Detail(),
	}
	if s.cfg.Store.Catalog.HasTenant(tenant) && !o.OperatorsOnly() {
		key.Schema = tenant
	}
	s.denied.Count(key, func() asyncflow.AuditEntry {
		e := s.entryOf(c, o)
		setCaller(&e, p)
		e.Tenant = tenant
		e.Outcome, e.Status = asyncflow.AuditDenied, statusOf[known.Code]
		e.Code = string(known.Code)
		reason := asyncflow.AuditText(known.Detail(), asyncflow.MaxAuditText)
		e.Detail = map[string]any{"reason": reason}
		token, err := auth.Bearer(c.Get(fiber.HeaderAuthorization))
		if err == nil && tenant == "" && p.Kind == "" {
			e.Claimed = auth.Claimed(token)
		}
		return e
	})
}

// The budgets of denied calls that are no tenant's, in words that can't be a tenant's name.
const (
	strangersBudget = "(not proven)"
	othersBudget    = "(operators, and tenants that don't exist)"
)

// auditBudget returns the owner of the budget that a caller's denied calls count in: a flood of
// calls without good tokens must not hide the denied calls of real ones, nor one tenant the denied
// calls of another.
func (s *Server) auditBudget(p auth.Principal, tenant string) string {
	switch {
	case s.cfg.Store.Catalog.HasTenant(tenant):
		return tenant
	case p.Kind != "":
		return othersBudget
	}
	return strangersBudget
}

// ListAudit lists a page of the tenant's audit.
func (s *Server) ListAudit(
	ctx context.Context, r ListAuditRequestObject,
) (ListAuditResponseObject, error) {
	page, err := s.auditPage(ctx, principalOf(ctx).Tenant, r.Params)
	return ListAudit200JSONResponse(page), err
}

// ListOperatorAudit lists a page of the operator's audit, of what belongs to no tenant.
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
