package asyncflow

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// EgressRule is an entry of the operator's lists: hosts with ports.
type EgressRule struct {
	text    string
	network netip.Prefix // a network; else
	host    string       // "*", a name, or "*.suffix"
	first   uint16       // port; 0: any
	last    uint16
}

// String returns the rule as it was written.
func (r EgressRule) String() string { return r.text }

// ParseAllowed reads the entries of an allow list, ParseDenied the entries of a deny list. An entry
// is a network (10.1.2.0/24, 10.1.2.3, fd00:1::/64), a host (hooks.example.com), everything
// below a host (*.example.com) or * for any, each with an optional port or range of ports
// (:443, :8000-8999). An IPv6 network with ports stands in brackets; ports alone apply to any
// host. The error names the entry.
func ParseAllowed(entries []string) ([]EgressRule, error) {
	return parseRules(entries, func(r EgressRule) string {
		if n := r.network; n.IsValid() && n.Bits() < widest(n.Addr()) {
			return fmt.Sprintf("is wider than /%d: write * for every public address, and each "+
				"network that is to be opened by itself", widest(n.Addr()))
		}
		return ""
	})
}

// ParseDenied reads the entries of a deny list.
func ParseDenied(entries []string) ([]EgressRule, error) {
	return parseRules(entries, func(EgressRule) string { return "" })
}

// widest is the shortest prefix of a network that a list may open: that of the private networks
// 10.0.0.0/8 and fc00::/7. A wider one would open more than intended.
func widest(a netip.Addr) int {
	if a.Is4() {
		return 8
	}
	return 7
}

func parseRules(entries []string, refuse func(EgressRule) string) ([]EgressRule, error) {
	var rules []EgressRule
	for _, entry := range entries {
		r, why := parseRule(strings.TrimSpace(entry))
		if why == "" {
			why = refuse(r)
		}
		if why != "" {
			return nil, fmt.Errorf("has the entry %q, which %s", entry, why)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// parseRule reads one entry, or explains what is wrong with it.
func parseRule(text string) (EgressRule, string) {
	r := EgressRule{text: text}
	target, ports, hasPorts := cutPorts(text)
	if hasPorts {
		if r.first, r.last = parsePorts(ports); r.first == 0 {
			return r, "has the port " + strconv.Quote(ports) +
				"; it must be 1 to 65535, or a range such as 8000-8999"
		}
	}
	network, isNetwork, why := parseNetwork(target)
	switch {
	case text == "":
		return r, "is empty"
	case why != "":
		return r, why
	case isNetwork:
		r.network = network
	case target == "" || target == "*":
		r.host = "*"
	default:
		r.host = strings.ToLower(target)
		if why := spellingFault(strings.TrimPrefix(r.host, "*.")); why != "" {
			return r, why +
				"; an entry is a network, a host, *.suffix or *, and may end in a port such as :443"
		}
	}
	return r, ""
}

// cutPorts divides an entry by the colon before its ports. IPv6 uses colons of its own.
func cutPorts(text string) (target, ports string, found bool) {
	if rest, ok := strings.CutPrefix(text, "["); ok {
		target, ports, _ = strings.Cut(rest, "]")
		ports, found = strings.CutPrefix(ports, ":")
		if !strings.Contains(target, ":") ||
			!found && (ports != "" || !strings.HasSuffix(text, "]")) {
			return text, "", false // which is nothing
		}
		return target, ports, found
	}
	if strings.Count(text, ":") != 1 {
		return text, "", false
	}
	return strings.Cut(text, ":")
}

// parsePorts reads a port or a range; 0, 0 if it is none.
func parsePorts(text string) (first, last uint16) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first = parsePort(from)
	last = parsePort(to)
	if first == 0 || last < first {
		return 0, 0
	}
	return first, last
}

// parsePort reads a port in its one spelling; 0 if it is none.
func parsePort(text string) uint16 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0
	}
	return uint16(n)
}

// parseNetwork reads a network or a single address.
func parseNetwork(text string) (n netip.Prefix, found bool, why string) {
	if addr, err := netip.ParseAddr(text); err == nil {
		n = netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
		if addr.Zone() != "" {
			return n, false, "has a zone: write the address without it"
		}
	} else if n, err = netip.ParsePrefix(text); err != nil {
		if strings.Contains(text, "/") {
			return n, false, "is not a network such as 10.1.2.0/24"
		}
		return n, false, ""
	}
	switch {
	case n.Addr().Is4In6():
		return n, false, "is an IPv4 network written as IPv6: write it as IPv4"
	case n != n.Masked():
		return n, false, "has bits beyond its length: write " + n.Masked().String()
	}
	return n, true, ""
}

func (r EgressRule) isNetwork() bool { return r.network.IsValid() }

// matches reports whether the rule applies to a connection.
func (r EgressRule) matches(host string, to netip.AddrPort) bool {
	if !r.hasPort(to.Port()) {
		return false
	}
	if r.isNetwork() {
		return r.covers(to.Addr())
	}
	return r.names(strings.ToLower(host))
}

func (r EgressRule) hasPort(port uint16) bool {
	return r.first == 0 || r.first <= port && port <= r.last
}

// names reports whether the rule names a host, which is in lower case.
func (r EgressRule) names(host string) bool {
	suffix, below := strings.CutPrefix(r.host, "*")
	return r.host == host || below && strings.HasSuffix(host, suffix)
}

// covers reports whether the rule's network contains an address, or the IPv4 address within it.
func (r EgressRule) covers(a netip.Addr) bool {
	for _, one := range append(EmbeddedIPv4(a), a.Unmap().WithZone("")) {
		if r.network.Contains(one) {
			return true
		}
	}
	return false
}
