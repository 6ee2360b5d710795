package httpapi

import (
	"cmp"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/deniedcalls"
)

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

// The budgets of denied calls that are no tenant's, in words that no tenant can have for a name.
const (
	strangersBudget = "(not proven)"
	othersBudget    = "(operators, and tenants that don't exist)"
)

// auditBudget returns whose budget of denied calls a caller's is: a flood of calls without good
// tokens must not hide the denied calls of real ones, nor one tenant those of another.
func (s *Server) auditBudget(p auth.Principal, tenant string) string {
	switch {
	case s.cfg.Store.Catalog.HasTenant(tenant):
		return tenant
	case p.Kind != "":
		return othersBudget
	}
	return strangersBudget
}
