package auth

import (
	"strings"
	"time"
	"unicode"

	"github.com/asyncflow/asyncflow"
)

// Kind says what a token speaks for. The header typ tells it, and a token of one
// kind is never taken for one of the other.
type Kind string

const (
	// KindTenant is a caller that acts for one tenant, within its scopes. The scope
	// admin is none of them.
	KindTenant Kind = "tenant"

	// KindOperator is a caller that acts on what lies above the tenants. Its token
	// ("admin token") names no tenant and carries the scope admin, and no other counts.
	KindOperator Kind = "operator"
)

// Principal is a verified caller.
type Principal struct {
	Kind      Kind
	Tenant    string    // the tenant it acts for; empty for an operator, never else
	Issuer    string    // who vouches for it: the claim iss
	Subject   string    // who it is, for the audit; empty if the token doesn't say
	TokenID   string    // the token's jti, cut to 255 bytes; empty if it has none
	Scopes    Scopes    // what it may do; of an operator, admin alone
	IssuedAt  time.Time // when its token was issued, in UTC; zero if the token doesn't say
	ExpiresAt time.Time // when its token expires, in UTC, without any leeway
}

// Has tells whether p carries scope.
func (p Principal) Has(scope Scope) bool { return p.Scopes.Has(scope) }

// Require returns nil if p carries scope, else a CodeForbidden error that
// names the scope.
func (p Principal) Require(scope Scope) error {
	if p.Has(scope) {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden, "this needs the scope %q, which the token doesn't carry", string(scope))
}

// RequireKind returns nil if p is of a kind, else a CodeForbidden error that says
// which token is needed.
func (p Principal) RequireKind(kind Kind) error {
	switch {
	case p.Kind == kind:
		return nil
	case kind == KindOperator:
		return asyncflow.Errorf(asyncflow.CodeForbidden, "this needs an admin token (an operator's); the token is a tenant's")
	default:
		return asyncflow.Errorf(asyncflow.CodeForbidden, "this needs the token of a tenant; an admin token speaks for none")
	}
}

const (
	maxSubjectLen = 255 // bytes
)

const subjectRule = "must be at most 255 bytes without control characters"

// validSubject bounds what goes into audit rows and logs. An empty subject is
// valid; a NUL byte is not, since Postgres can't store one.
func validSubject(subject string) bool {
	return len(subject) <= maxSubjectLen && !strings.ContainsFunc(subject, unicode.IsControl)
}
