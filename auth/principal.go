package auth

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/asyncflow/asyncflow"
)

// Kind is for whom a token acts. The header typ determines it, and a token of one kind is never
// accepted as the other kind.
type Kind string

const (
	// KindTenant is a caller that acts for one tenant, within its scopes, which never include
	// admin.
	KindTenant Kind = "tenant"

	// KindOperator is a caller that acts for no tenant. Its token ("admin token") names no tenant,
	// and carries the scope admin; other scopes are ignored.
	KindOperator Kind = "operator"
)

// Principal is a verified caller.
type Principal struct {
	Kind      Kind
	Tenant    string    // for which it acts; empty only for an operator
	Issuer    string    // of its token: the claim iss
	Subject   string    // who it is, for the audit; empty if the token doesn't say
	TokenID   string    // the token's jti, cut to 255 bytes; empty if there is none
	Claimers  Claimers  // the names under which it may claim; nil: the token doesn't say
	Labels    Labels    // of its claimers; nil: the token doesn't say
	Stages    Stages    // from which it may claim; nil: all
	Scopes    Scopes    // what it may do; only admin for an operator
	IssuedAt  time.Time // when its token was issued, in UTC; zero if there is no iat in the token
	ExpiresAt time.Time // when its token expires, in UTC, without leeway
}

// Has reports whether p has a scope.
func (p Principal) Has(scope Scope) bool { return p.Scopes.Has(scope) }

// Require returns nil if a scope is among p's, else a CodeForbidden error that names the scope.
func (p Principal) Require(scope Scope) error {
	if p.Has(scope) {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden,
		"this needs the scope %q, which the token doesn't carry", string(scope))
}

// RequireKind returns nil if p is of a kind, else a CodeForbidden error that names the token that
// is needed.
func (p Principal) RequireKind(kind Kind) error {
	switch {
	case p.Kind == kind:
		return nil
	case kind == KindOperator:
		return asyncflow.Errorf(asyncflow.CodeForbidden,
			"this needs an admin token (an operator's); the token is a tenant's")
	default:
		return asyncflow.Errorf(asyncflow.CodeForbidden,
			"this needs the token of a tenant; an admin token speaks for none")
	}
}

const maxSubjectLen = 255 // bytes

const subjectRule = "must be at most 255 bytes without control characters"

// validSubject reports whether a subject can go into audit rows and logs. An empty subject can; one
// with a NUL byte can't, because Postgres doesn't store it.
func validSubject(subject string) bool {
	return len(subject) <= maxSubjectLen && !strings.ContainsFunc(subject, unicode.IsControl)
}

// Claimers are the names under which a token may claim tasks. One that ends in * stands for all
// names that begin with what is before it.
type Claimers []string

// MaxClaimers is the most names in a token.
const MaxClaimers = 100

// Has reports whether a name is among them.
func (c Claimers) Has(name string) bool {
	return slices.ContainsFunc(c, func(one string) bool {
		prefix, all := strings.CutSuffix(one, "*")
		return one == name || all && strings.HasPrefix(name, prefix)
	})
}

func (c Claimers) String() string { return strings.Join(c, ", ") }

// UnmarshalJSON reads the list of a token. It is never nil, not even for null: a token that says
// something about claimers must not allow them all.
func (c *Claimers) UnmarshalJSON(data []byte) error {
	list := []string{}
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if list == nil {
		list = []string{}
	}
	*c = list
	return c.check()
}

func (c Claimers) check() error {
	if len(c) > MaxClaimers {
		return asyncflow.InvalidField("claimers", "has %d names; the limit is %d", len(c),
			MaxClaimers)
	}
	for _, one := range c {
		if one == "*" {
			continue
		}
		if err := asyncflow.CheckClaimer(one); err != nil {
			return asyncflow.InvalidField("claimers", "has %.80q, which is no name of a claimer",
				one)
		}
	}
	return nil
}

// Scope is one thing that a token allows its bearer to do. No scope implies another.
type Scope string

const (
	ScopeSubmit  Scope = "submit"  // submit tasks, and nothing else
	ScopeRead    Scope = "read"    // read tasks, types and statistics
	ScopeWork    Scope = "work"    // lease tasks and report on them
	ScopeOperate Scope = "operate" // change existing tasks of all submitters; pause and resume
	ScopeManage  Scope = "manage"  // change types, endpoints, schedules and alerts
	ScopeAdmin   Scope = "admin"   // manage tenants and nodes; for operators only
)

// allScopes fixes the order of lists and the bit of each scope in Scopes.
var allScopes = [...]Scope{ScopeSubmit, ScopeRead, ScopeWork, ScopeOperate, ScopeManage, ScopeAdmin}

// bit returns the set that has only s; it is empty for an unknown scope.
func (s Scope) bit() Scopes {
	for i, known := range allScopes {
		if s == known {
			return 1 << i
		}
	}
	return 0
}

// Known reports whether s is one of the scopes of this package.
func (s Scope) Known() bool { return s.bit() != 0 }

// Scopes is a set of known scopes. Its zero value is the empty set. Sets are equal (==) if the same
// scopes are in them.
type Scopes uint8

// NewScopes returns the set of the given scopes, without unknown ones.
func NewScopes(scopes ...Scope) Scopes {
	var set Scopes
	for _, s := range scopes {
		set |= s.bit()
	}
	return set
}

// scopesOfToken returns the scopes of a scope claim. It ignores unknown ones: a token may also be
// for other services, or for later versions of this one.
func scopesOfToken(names []string) Scopes {
	var set Scopes
	for _, name := range names {
		set |= Scope(name).bit()
	}
	return set
}

// Has reports whether the set has a scope. An unknown scope is never in it.
func (set Scopes) Has(scope Scope) bool { return set&scope.bit() != 0 }

// List returns the scopes of the set, in the order of the constants.
func (set Scopes) List() []Scope {
	var list []Scope
	for _, s := range allScopes {
		if set.Has(s) {
			list = append(list, s)
		}
	}
	return list
}

// String returns the scopes separated by spaces, in the form of a scope claim.
func (set Scopes) String() string {
	list := set.List()
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = string(s)
	}
	return strings.Join(names, " ")
}

// unknownScope returns the InvalidField error of an unknown scope.
func unknownScope(field string, s Scope) error {
	names := NewScopes(allScopes[:]...).String()
	return asyncflow.InvalidField(field, "names the unknown scope %.40q: the scopes are %s",
		string(s), names)
}
