package httpapi

import (
	"cmp"
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/store"
)

// audited is admit for a call that has an entry in the audit. A change writes it itself,
// with the change; whatever else came of the call is written here, before the answer.
// Calls that are denied have their entry from noteDenied.
func (s *Server) audited(c *fiber.Ctx, o *operation, values map[string]string) error {
	act := store.NewAct("", s.entryOf(c, o))
	for _, value := range values { // a path has one at most
		act.Object = value
	}
	act.Status, act.StatusNew = o.status, o.statusNew
	err := guarded(func() error { return s.pass(c, o, values, act) })
	if act.Written() {
		return err
	}
	act.Status = c.Response().StatusCode()
	if err != nil {
		known := knownError(err)
		act.Status, act.Code = statusOf[known.Code], string(known.Code)
	}
	act.Outcome = asyncflow.AuditOutcomeOf(act.Status)
	proven := principalOf(c.UserContext()).Kind != ""
	if proven && act.Outcome != asyncflow.AuditDenied { // nobody writes entries one by one without a good token
		s.record(act)
	}
	return err
}

// recordTime bounds the writing of an entry. It goes on when the call's own time is over.
const recordTime = 3 * time.Second

// record writes an act of a call that changed nothing. When that fails, the log has it.
func (s *Server) record(act *store.Act) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	if err := s.cfg.Store.Record(ctx, act); err != nil {
		s.log.Error("can't write an entry of the audit", "tenant", act.Tenant, "subject", act.Subject, "action", act.Action, "object", act.Object,
			"address", act.Address, "status", act.Status, "request_id", act.RequestID, "error", err)
	}
}

// entryOf returns what a call says without a credential.
func (s *Server) entryOf(c *fiber.Ctx, o *operation) asyncflow.AuditEntry {
	e := asyncflow.AuditEntry{Origin: asyncflow.AuditFromAPI, Action: o.action, ObjectType: o.objectType, RequestID: requestID(c),
		UserAgent: asyncflow.AuditText(c.Get(fiber.HeaderUserAgent), asyncflow.MaxAuditText)}
	e.Address, e.Proxy = s.addressOf(c)
	return e
}

// actBy tells an act who calls, once that is proven, and whose audit it belongs to: what
// is for operators lies above the tenants. The context that is returned has the act.
func (s *Server) actBy(ctx context.Context, act *store.Act, o *operation) context.Context {
	p := principalOf(ctx)
	callerOf(&act.AuditEntry, p)
	if !o.aboveTenants() && s.cfg.Store.Catalog.HasTenant(p.Tenant) {
		act.Schema = p.Tenant
	}
	return store.WithAct(ctx, act)
}

// callerOf writes a proven caller into an entry.
func callerOf(e *asyncflow.AuditEntry, p auth.Principal) {
	e.Tenant, e.Subject, e.TokenID, e.Issuer, e.Scopes = p.Tenant, p.Subject, p.TokenID, p.Issuer, p.Scopes.String()
}

// noteDenied has a call that was denied counted for the audit. Nobody waits for that.
func (s *Server) noteDenied(c *fiber.Ctx, o *operation, err error) {
	known := knownError(err)
	if asyncflow.AuditOutcomeOf(statusOf[known.Code]) != asyncflow.AuditDenied {
		return
	}
	p := principalOf(c.UserContext())
	tenant := cmp.Or(p.Tenant, completionOf(c.UserContext()).Tenant)
	address, _ := s.addressOf(c)
	key := deniedKey{issuer: p.Issuer, subject: p.Subject, address: address, action: o.action, reason: known.Detail()}
	if s.cfg.Store.Catalog.HasTenant(tenant) && !o.aboveTenants() {
		key.schema = tenant
	}
	s.denied.note(key, func() asyncflow.AuditEntry {
		e := s.entryOf(c, o)
		callerOf(&e, p)
		e.Tenant = tenant
		e.Outcome, e.Status, e.Code = asyncflow.AuditDenied, statusOf[known.Code], string(known.Code)
		e.Detail = map[string]any{"reason": asyncflow.AuditText(known.Detail(), asyncflow.MaxAuditText)}
		if token, err := auth.Bearer(c.Get(fiber.HeaderAuthorization)); err == nil && tenant == "" && p.Kind == "" {
			e.Claimed = auth.Claimed(token)
		}
		return e
	})
}
