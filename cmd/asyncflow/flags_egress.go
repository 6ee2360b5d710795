package main

import (
	"github.com/asyncflow/asyncflow"
)

// egressFlags list allowed and denied destinations of deliveries.
type egressFlags struct {
	EgressAllow []string `name:"egress-allow" env:"ASYNCFLOW_EGRESS_ALLOW" placeholder:"RULE" help:"The only destinations that deliveries may have: networks, hosts, *.suffix or *, each with an optional :port or :port-port. Listing a private network allows it. Separate several by commas, or repeat the flag."`
	EgressDeny  []string `name:"egress-deny" env:"ASYNCFLOW_EGRESS_DENY" placeholder:"RULE" help:"Destinations that deliveries must not have, even if --egress-allow allows them; in the same form."`
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
