package main

import (
	"strings"

	"github.com/asyncflow/asyncflow"
)

// claimFlags say who may claim a task.
type claimFlags struct {
	ClaimExclude []string `placeholder:"NAME" help:"A claimer that may not have it; repeatable."`
	ClaimLabel   []string `placeholder:"NAME=VALUE" help:"What a claimer's labels must have."`
}

// claimRules returns the rules; nil: there are none.
func (c *claimFlags) claimRules() (*asyncflow.ClaimRules, error) {
	if len(c.ClaimExclude)+len(c.ClaimLabel) == 0 {
		return nil, nil
	}
	r := &asyncflow.ClaimRules{Exclude: c.ClaimExclude}
	for _, text := range c.ClaimLabel {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := r.Labels[name]; !ok || twice {
			return nil, asyncflow.InvalidField("--claim-label",
				"is %.80q; it must be NAME=VALUE, each name once", text)
		}
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		r.Labels[name] = value
	}
	return r, nil
}

// otherClaimFlags replace the rules of who may claim a task.
type otherClaimFlags struct {
	claimFlags
	ClaimAnyone bool `help:"Anyone may claim it: it loses its rules."`
}

// change returns the rules that replace those of a task; empty ones: there are none; nil: the same.
func (c *otherClaimFlags) change() (*asyncflow.ClaimRules, error) {
	r, err := c.claimRules()
	switch {
	case !c.ClaimAnyone:
		return r, err
	case r != nil:
		return nil, asyncflow.InvalidField("--claim-anyone",
			"excludes --claim-exclude and --claim-label")
	}
	return &asyncflow.ClaimRules{}, err
}
