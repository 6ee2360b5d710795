package auth

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
)

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
		return asyncflow.InvalidField("claimers", "has %d names; the limit is %d", len(c), MaxClaimers)
	}
	for _, one := range c {
		if one == "*" {
			continue
		}
		if err := asyncflow.CheckClaimer(one); err != nil {
			return asyncflow.InvalidField("claimers", "has %.80q, which is no name of a claimer", one)
		}
	}
	return nil
}
