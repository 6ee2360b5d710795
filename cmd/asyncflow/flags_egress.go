package main

import (
	"github.com/asyncflow/asyncflow"
)

// egressFlags list allowed and denied destinations of deliveries.
type egressFlags struct {
	EgressAllow []string `env:"ASYNCFLOW_EGRESS_ALLOW" placeholder:"RULE"`
	EgressDeny  []string `env:"ASYNCFLOW_EGRESS_DENY" placeholder:"RULE"`
}

// policy returns the policy for deliveries. An error names the invalid entry.
func (f egressFlags) policy(allowHTTP, allowPrivate bool) (asyncflow.Egress, error) {
	allow, err := asyncflow.ParseAllowed(f.EgressAllow)
	if err != nil {
		return asyncflow.Egress{}, asyncflow.InvalidField("--egress-allow", "%v", err)
	}
	deny, err := asyncflow.ParseDenied(f.EgressDeny)
	if err != nil {
		return asyncflow.Egress{}, asyncflow.InvalidField("--egress-deny", "%v", err)
	}
	return asyncflow.Egress{AllowHTTP: allowHTTP, AllowPrivate: allowPrivate, Allow: allow,
		Deny: deny}, nil
}
