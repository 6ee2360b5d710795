package asyncflow

import (
	"fmt"
	"net/netip"
	"strings"
)

// MaxNameLength bounds the names of tenants, task types and stages, so that the
// names of the tables made from them fit into Postgres' 63 bytes.
const MaxNameLength = 40

// CheckName explains what is wrong with the name of a tenant, a task type or a stage. It must
// start with a lower-case letter, followed by lower-case letters, digits, "-" and "_", at most
// 40 characters.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("is required")
	case len(name) > MaxNameLength:
		return fmt.Errorf("is %d characters long; the limit is %d", len(name), MaxNameLength)
	case name[0] < 'a' || name[0] > 'z':
		return fmt.Errorf("must start with a lower-case letter")
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("may hold lower-case letters, digits, - and _ only")
		}
	}
	return nil
}

// MaxHost bounds a host's name, in bytes (RFC 1035).
const MaxHost = 253

// spellingFault returns what is wrong with the spelling of a host in lower case; "" if it is right.
// A host is a DNS name, or an address in its only unambiguous spelling. Resolvers and libraries
// disagree about other spellings (0x7f.1, 2130706433, full-width digits, zones, dots at the
// end), so the checked address might differ from the dialled one.
func spellingFault(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		switch {
		case addr.Zone() != "":
			return "must not hold a zone: it means something to one machine only"
		case addr.Is4In6() || len(EmbeddedIPv4(addr)) > 0:
			return "must not hold an IPv4 address that is written as IPv6"
		}
		return ""
	}
	labels := strings.Split(host, ".")
	switch {
	case strings.ContainsFunc(host, func(c rune) bool { return c > 0x7e }):
		return "must have its host in ASCII: write international names in Punycode, as xn--…"
	case len(host) > MaxHost:
		return "has a host that is too long; the limit is 253 bytes"
	case strings.HasSuffix(host, "."):
		return "must not end its host in a dot"
	case isNumeric(labels[len(labels)-1]):
		return "must name its host, or hold an address as 192.0.2.1: other spellings of numbers " +
			"are not taken"
	}
	for _, label := range labels {
		if !isLabel(label) {
			return "must name its host with letters, digits, hyphens and dots"
		}
	}
	return ""
}

// isLabel reports whether a text is a label of a host's name. Names of containers may contain
// underscores.
func isLabel(text string) bool {
	if text == "" || len(text) > 63 || text[0] == '-' || text[len(text)-1] == '-' {
		return false
	}
	return strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// isNumeric reports whether the last label of a host makes some resolver read it as a number:
// digits, or 0x and hexadecimal ones (WHATWG URL, "ends in a number").
func isNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// EmbeddedIPv4 returns the IPv4 addresses to which a gateway, a tunnel or the system itself may
// translate an IPv6 address.
func EmbeddedIPv4(a netip.Addr) []netip.Addr {
	if !a.Is6() || a.Is4In6() {
		return nil
	}
	b := a.As16()
	v4 := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case networkContains("64:ff9b::/96", a): // NAT64 (RFC 6052)
		return []netip.Addr{v4(12)}
	case networkContains("64:ff9b:1::/48", a): // NAT64 of a site (RFC 8215): at any of these places
		return []netip.Addr{v4(12), netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
			netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}), v4(9)}
	case networkContains("2002::/16", a): // 6to4 (RFC 3056)
		return []netip.Addr{v4(2)}
	case networkContains("2001::/32", a): // Teredo (RFC 4380): the server, and the client negated
		return []netip.Addr{v4(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case networkContains("::ffff:0:0:0/96", a): // SIIT (RFC 7915)
		return []netip.Addr{v4(12)}
	// compatible (RFC 4291)
	case networkContains("::/96", a) && !a.IsUnspecified() && !a.IsLoopback():
		return []netip.Addr{v4(12)}
	case b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe && b[8]&^3 == 0: // ISATAP (RFC 5214)
		return []netip.Addr{v4(12)}
	}
	return nil
}

func networkContains(network string, a netip.Addr) bool {
	return netip.MustParsePrefix(network).Contains(a.WithZone(""))
}
