package auth

import (
	"strings"

	"github.com/asyncflow/asyncflow"
)

// Scope is one thing that a token allows its bearer to do. No scope implies
// another.
type Scope string

const (
	ScopeSubmit  Scope = "submit"  // submit tasks, and nothing else
	ScopeRead    Scope = "read"    // read tasks, types and statistics
	ScopeWork    Scope = "work"    // lease tasks and report on them
	ScopeOperate Scope = "operate" // change existing tasks, also those of other submitters; pause and resume
	ScopeManage  Scope = "manage"  // change what a tenant has configured: types, endpoints, schedules, alerts
	ScopeAdmin   Scope = "admin"   // see and change what lies above a tenant; of operators only
)

// allScopes fixes the order of lists and the bit of each scope in Scopes.
var allScopes = [...]Scope{ScopeSubmit, ScopeRead, ScopeWork, ScopeOperate, ScopeManage, ScopeAdmin}

// bit returns the set of s alone, empty for a scope that isn't known.
func (s Scope) bit() Scopes {
	for i, known := range allScopes {
		if s == known {
			return 1 << i
		}
	}
	return 0
}

// Known tells whether s is one of the scopes of this package.
func (s Scope) Known() bool { return s.bit() != 0 }

// Scopes is a set of known scopes. Its zero value is the empty set; sets are
// equal when they hold the same scopes.
type Scopes uint8

// NewScopes returns the set of the scopes given, leaving out unknown ones.
func NewScopes(scopes ...Scope) Scopes {
	var set Scopes
	for _, s := range scopes {
		set |= s.bit()
	}
	return set
}

// scopesOfToken returns the scopes of a scope claim. It leaves out unknown ones: a
// token serves other services too, and those of a later version.
func scopesOfToken(names []string) Scopes {
	var set Scopes
	for _, name := range names {
		set |= Scope(name).bit()
	}
	return set
}

// Has tells whether the set holds scope; never, if scope is unknown.
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

// String returns the scopes separated by spaces, as a scope claim has them.
func (set Scopes) String() string {
	list := set.List()
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = string(s)
	}
	return strings.Join(names, " ")
}

// unknownScope returns the InvalidField of a scope that isn't known.
func unknownScope(field string, s Scope) error {
	names := NewScopes(allScopes[:]...).String()
	return asyncflow.InvalidField(field, "names the unknown scope %.40q: the scopes are %s", string(s), names)
}
