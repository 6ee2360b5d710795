package httpapi

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/store"
)

// passAudited is pass for a call that always has an entry in the audit. A change writes its entry
// itself, in its transaction; passAudited writes the entry of every other result, before the
// answer. Denied calls get their entry from countDenied.
func (s *Server) passAudited(
	c *fiber.Ctx, o *contract.Operation, values map[string]string,
) error {
	act := store.NewAct("", s.entryOf(c, o))
	for _, value := range values { // a path has one at most
		act.Object = value
	}
	act.Status, act.StatusNew = o.Status, o.StatusNew
	err := recovered(func() error { return s.pass(c, o, values, act) })
	if act.Written() {
		return err
	}
	act.Status = c.Response().StatusCode()
	if err != nil {
		known := knownError(err)
		act.Status, act.Code = statusOf[known.Code], string(known.Code)
	}
	act.Outcome = asyncflow.AuditOutcomeOf(act.Status)
	// A caller without a good token must not fill the audit.
	proven := principalOf(c.UserContext()).Kind != ""
	if proven && act.Outcome != asyncflow.AuditDenied {
		s.record(act)
	}
	return err
}

// recordTime bounds the writing of an entry, which goes on when the call's own time is over.
const recordTime = 3 * time.Second

// record writes the entry of a call that changed nothing. If that fails, the log has the entry.
func (s *Server) record(act *store.Act) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	if err := s.cfg.Store.Record(ctx, act); err != nil {
		s.log.Error("can't write an entry of the audit",
			"tenant", act.Tenant,
			"subject", act.Subject,
			"action", act.Action,
			"object", act.Object,
			"address", act.Address,
			"status", act.Status,
			"request_id", act.RequestID,
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

// withAct writes the proven caller into an audited call, and whose audit has its entry: calls for
// operators only belong to no tenant. The context that it returns has the audited call.
func (s *Server) withAct(
	ctx context.Context, act *store.Act, o *contract.Operation,
) context.Context {
	p := principalOf(ctx)
	setCaller(&act.AuditEntry, p)
	if !o.OperatorsOnly() && s.cfg.Store.Catalog.HasTenant(p.Tenant) {
		act.Schema = p.Tenant
	}
	return store.WithAct(ctx, act)
}

// setCaller writes a proven caller into an entry.
func setCaller(e *asyncflow.AuditEntry, p auth.Principal) {
	e.Tenant, e.Subject, e.TokenID = p.Tenant, p.Subject, p.TokenID
	e.Issuer, e.Scopes = p.Issuer, p.Scopes.String()
}
