package auth

import (
	"strings"
	"time"
	"unicode"

	"github.com/asyncflow/asyncflow"
)

// Principal is a verified caller.
type Principal struct {
	Tenant    string    // the tenant it acts for; never empty
	Subject   string    // who it is, for the audit; empty if the token doesn't say
	TokenID   string    // the token's jti, cut to 255 bytes; empty if it has none
	Issuer    string    // who made the token
	Scopes    Scopes    // what it may do
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

const (
	maxSubjectLen = 255 // bytes
)

const subjectRule = "must be at most 255 bytes without control characters"

// validSubject bounds what goes into audit rows and logs. An empty subject is
// valid; a NUL byte is not, since Postgres can't store one.
func validSubject(subject string) bool {
	return len(subject) <= maxSubjectLen && !strings.ContainsFunc(subject, unicode.IsControl)
}
