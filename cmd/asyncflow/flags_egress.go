package main

import (
	"github.com/asyncflow/asyncflow"
)

// egressFlags say where deliveries may go, beside the two switches.
type egressFlags struct {
	EgressAllow []string `name:"egress-allow" env:"ASYNCFLOW_EGRESS_ALLOW" placeholder:"RULE" help:"Where deliveries may go, and nowhere else: networks, hosts, *.suffix or *, each with or without :port or :port-port. A network opens also a private one. Several by commas, or the flag again."`
	EgressDeny  []string `name:"egress-deny" env:"ASYNCFLOW_EGRESS_DENY" placeholder:"RULE" help:"Where deliveries must not go, whatever else allows it; written as --egress-allow."`
}

// policy returns the policy for deliveries; an entry that can't be is named.
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
