package main

import (
	"net/netip"
	"time"

	"github.com/asyncflow/asyncflow"
)

// auditFlags set the retention of the audit, and the proxies that it trusts.
type auditFlags struct {
	AuditRetention time.Duration `env:"ASYNCFLOW_AUDIT_RETENTION" default:"8760h"`
	TrustedProxies []string      `env:"ASYNCFLOW_TRUSTED_PROXIES" placeholder:"CIDR"`
}

// checkRetention refuses a retention that is out of range.
func checkRetention(d time.Duration) error {
	if d < asyncflow.MinAuditRetention || d > asyncflow.MaxAuditRetention {
		return asyncflow.InvalidField("--audit-retention", "is %s; it must be 24h to 87600h (10 years)",
			d)
	}
	return nil
}

// proxies returns the networks of the trusted proxies. A single address is a network as well.
func (f auditFlags) proxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range f.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if a, err2 := netip.ParseAddr(text); err2 == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil || p.Addr().Is4In6() {
			return nil, asyncflow.InvalidField("--trusted-proxies",
				"has %q; it must be networks such as 10.0.0.0/8 or fd00::/8", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
