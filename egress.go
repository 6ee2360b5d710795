package asyncflow

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Egress is the operator's policy for the destinations of deliveries. The zero value allows
// https to the public internet, on any port.
//
// It is checked twice: for a URL, when an endpoint is registered and before each delivery
// (Validate, Refuses), and for the address that is dialled (Permits). Only the second check
// keeps deliveries out of a network, since a name may resolve to another address at any time.
type Egress struct {
	// AllowHTTP allows plain http URLs.
	AllowHTTP bool
	// AllowPrivate treats loopback, private and other special networks as public, and allows
	// addresses in place of names in URLs.
	AllowPrivate bool
	// Deny lists forbidden destinations; it overrides everything else.
	Deny []EgressRule
	// Allow lists the allowed destinations; empty: all that Deny doesn't list. It opens a special
	// network only if it lists that as a network.
	Allow []EgressRule
}

// Anywhere is the policy that allows every well-formed URL.
var Anywhere = Egress{AllowHTTP: true, AllowPrivate: true}

// Permits reports whether a connection for a host may be opened to an address. special reports
// whether the address belongs to a special network rather than the public internet.
func (e Egress) Permits(host string, to netip.AddrPort, special bool) bool {
	if slices.ContainsFunc(e.Deny, func(r EgressRule) bool { return r.matches(host, to) }) {
		return false
	}
	public := e.AllowPrivate || !special
	if len(e.Allow) == 0 {
		return public
	}
	return slices.ContainsFunc(e.Allow, func(r EgressRule) bool {
		return (public || r.isNetwork()) && r.matches(host, to)
	})
}

// Refuses returns the reason not to deliver to an absolute URL, as far as it is known before
// its name is resolved; "" if there is none.
func (e Egress) Refuses(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	port := portOf(u)
	if u.Scheme != "https" && (u.Scheme != "http" || !e.AllowHTTP) {
		return "must be https: plain http is off (the operator's --allow-http)"
	}
	if why := spellingFault(host); why != "" {
		return why
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return e.refusesAddress(netip.AddrPortFrom(addr, port))
	}
	if loopbackName(host) && !e.opensLoopback() {
		return "names this machine: it must be a host that others know too"
	}
	named := func(r EgressRule) bool { return !r.isNetwork() && r.names(host) && r.hasPort(port) }
	if slices.ContainsFunc(e.Deny, named) {
		return refusedByRule
	}
	possible := func(r EgressRule) bool { return named(r) || r.isNetwork() && r.hasPort(port) }
	if len(e.Allow) > 0 && !slices.ContainsFunc(e.Allow, possible) {
		return refusedByRule
	}
	return ""
}

const refusedByRule = "is where the operator lets no delivery go (--egress-allow, --egress-deny)"

// refusesAddress is Refuses for a URL with an address in place of a name.
func (e Egress) refusesAddress(to netip.AddrPort) string {
	opened := slices.ContainsFunc(e.Allow,
		func(r EgressRule) bool { return r.isNetwork() && r.matches("", to) })
	switch {
	case !e.AllowPrivate && !opened:
		return "must name its host: addresses are not taken (the operator's " +
			"--allow-private-networks, or a network of --egress-allow)"
	case !e.Permits(to.Addr().String(), to, false):
		return refusedByRule
	}
	return ""
}

// opensLoopback reports whether the operator allows deliveries to this machine.
func (e Egress) opensLoopback() bool {
	return e.AllowPrivate || slices.ContainsFunc(e.Allow, func(r EgressRule) bool {
		return r.isNetwork() && (r.covers(netip.MustParseAddr("127.0.0.1")) ||
			r.covers(netip.IPv6Loopback()))
	})
}

// loopbackName reports whether a name means this machine wherever it is resolved.
func loopbackName(host string) bool {
	return strings.HasSuffix(host, ".localhost") || slices.Contains(loopbackNames, host)
}

// loopbackNames are the names in RFC 6761 and in the hosts files of distributions.
var loopbackNames = []string{"localhost", "localhost.localdomain", "localhost4",
	"localhost4.localdomain4",
	"localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"}

// portOf returns the port of a URL, or that of its scheme.
func portOf(u *url.URL) uint16 {
	switch {
	case u.Port() != "":
		return parsePort(u.Port())
	case u.Scheme == "http":
		return 80
	}
	return 443
}
