package contract

import (
	"fmt"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// Access is how the caller of an operation proves who it is.
type Access int

// The ways to prove who calls.
const (
	AccessToken      Access = iota // by a JWT
	AccessCompletion               // by the completion token of a delivery
	AccessOpen                     // not at all
)

// Security schemes of openapi.yaml.
const (
	schemeTenant     = "bearerAuth"      // a tenant's token with the scope in x-scope
	schemeOperator   = "adminToken"      // an operator's token, with the scope admin
	schemeCompletion = "completionToken" // the token of a delivery
)

// readAccess reads who may call an operation: the security schemes that the operation lists, any
// one is enough, or else the schemes of the whole document.
func (o *Operation) readAccess(doc *openapi3.T, op *openapi3.Operation) error {
	security := doc.Security
	if op.Security != nil {
		security = *op.Security
	}
	if len(security) == 0 {
		o.Access = AccessOpen
		return nil
	}
	o.Scopes = map[auth.Kind]auth.Scope{}
	for _, requirement := range security {
		for scheme := range requirement {
			if err := o.readScheme(scheme, op); err != nil {
				return fmt.Errorf("openapi.yaml: operation %s: %w", o.ID, err)
			}
		}
	}
	if name, ok := op.Extensions["x-scope"]; ok && o.Scopes[auth.KindTenant] == "" {
		return fmt.Errorf("openapi.yaml: operation %s has the x-scope %v, "+
			"but takes no token of a tenant", o.ID, name)
	}
	if o.Access != AccessCompletion || len(o.Scopes) == 0 {
		return nil
	}
	if o.Scopes[auth.KindOperator] != "" || o.Route.Method != http.MethodGet {
		return fmt.Errorf("openapi.yaml: operation %s takes a completion token beside another, "+
			"which only reads of tenants may", o.ID)
	}
	o.Access, o.Deliveries = AccessToken, true
	return nil
}

func (o *Operation) readScheme(scheme string, op *openapi3.Operation) error {
	switch scheme {
	case schemeCompletion:
		o.Access = AccessCompletion
	case schemeOperator:
		o.Scopes[auth.KindOperator] = auth.ScopeAdmin
	case schemeTenant:
		name, _ := op.Extensions["x-scope"].(string)
		scope := auth.Scope(name)
		if !scope.Known() || scope == auth.ScopeAdmin {
			return fmt.Errorf("x-scope is %q; it must be a scope of tenants "+
				"(an operator's call has the security scheme %s)", name, schemeOperator)
		}
		o.Scopes[auth.KindTenant] = scope
	default:
		return fmt.Errorf("the security scheme %q is not known", scheme)
	}
	return nil
}

// Allow returns nil if callers of p's kind may call the operation, and p has the scope that the
// operation asks of them.
func (o *Operation) Allow(p auth.Principal) error {
	if scope, ok := o.Scopes[p.Kind]; ok {
		return p.Require(scope)
	}
	for kind := range o.Scopes { // there is one only, as p's kind is not among them
		return p.RequireKind(kind)
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden, "this is open to nobody")
}

// OperatorsOnly reports whether only operators may call the operation.
func (o *Operation) OperatorsOnly() bool {
	return o.Scopes[auth.KindOperator] != "" && o.Scopes[auth.KindTenant] == ""
}
