package auth

import (
	"strings"

	"github.com/asyncflow/asyncflow"
)

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

// Scopes is a set of known scopes. Its zero value is the empty set. Sets are equal (==) if they
// have the same scopes.
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

// Has reports whether the set has a scope. It never has an unknown scope.
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
	return asyncflow.InvalidField(field, "names the unknown scope %.40q: the scopes are %s", string(s),
		names)
}
