package callbacks

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/asyncflow/asyncflow"
)

// dialTimeout bounds the opening of a connection, without the TLS handshake.
const dialTimeout = 10 * time.Second

// guard dials only where the operator's policy allows. It checks the address of each socket just
// before connecting: so another answer of the name server, earlier or later, makes no difference,
// and every address of a name is checked. A kept connection stays with the address that it was
// opened to.
type guard struct {
	egress asyncflow.Egress
	public *ssrf.Guardian
	own    *ownAddresses
	dialer net.Dialer // its Control is called after the policy agreed
}

// hostServices are public addresses that a cloud gives a meaning of its own inside each machine.
// Azure's hands out certificates and settings of the machine. The registries of special networks
// don't list them.
var hostServices = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32")}

func newGuard(cfg Config) *guard {
	return &guard{
		egress: cfg.Egress,
		public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(hostServices...)),
		own:    newOwnAddresses(cfg.OwnPorts),
		dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second,
			Resolver: cfg.Resolver},
	}
}

// DialContext opens a connection to a host and a port.
func (g *guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := g.dialer
	d.Control = func(network, to string, c syscall.RawConn) error {
		if err := g.check(host, to); err != nil || g.dialer.Control == nil {
			return err
		}
		return g.dialer.Control(network, to, c)
	}
	return d.DialContext(ctx, network, address)
}

// These errors are shown to tenants when the policy refuses an address. They don't reveal the
// address, nor what listens there.
var (
	errPrivate = errors.New("the endpoint's address is in a network that deliveries must not " +
		"reach (the operator's --allow-private-networks)")
	errRule = errors.New("the operator lets no delivery go to the endpoint's address " +
		"(--egress-allow, --egress-deny)")
)

// check checks an address against the policy, just before the connection.
func (g *guard) check(host, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errPrivate
	}
	special := g.isSpecial(to.Addr()) || g.own.has(to)
	switch {
	case g.egress.Permits(host, to, special):
		return nil
	case special && !g.egress.AllowPrivate:
		return errPrivate
	}
	return errRule
}

// isSpecial reports whether an address, or an IPv4 address within it to which a tunnel may lead,
// belongs to a special network.
func (g *guard) isSpecial(a netip.Addr) bool {
	for _, one := range append(asyncflow.EmbeddedIPv4(a), a) {
		if g.public.SafeAddr(one) != nil {
			return true
		}
	}
	return false
}

// ownAddresses are the addresses of this machine. What a node listens at there is no worker, also
// where the address is a public one: the metrics and the administration may be meant for a few.
type ownAddresses struct {
	ports []uint16 // at which the node listens

	mu      sync.Mutex
	known   []netip.Addr
	readAt  time.Time
	machine func() ([]net.Addr, error)
}

// ownAge is how old the list of a machine's addresses may be: they seldom change.
const ownAge = time.Minute

func newOwnAddresses(ports []uint16) *ownAddresses {
	return &ownAddresses{ports: ports, machine: net.InterfaceAddrs}
}

// has reports whether the node listens at an address. If the machine's addresses can't be read, the
// last ones stay.
func (o *ownAddresses) has(to netip.AddrPort) bool {
	return slices.Contains(o.ports, to.Port()) && slices.Contains(o.list(), to.Addr().Unmap())
}

func (o *ownAddresses) list() []netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.readAt) < ownAge {
		return o.known
	}
	o.readAt = time.Now()
	all, err := o.machine()
	if err != nil {
		return o.known
	}
	o.known = nil
	for _, a := range all {
		network, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		o.known = append(o.known, network.Addr().Unmap().WithZone(""))
	}
	return o.known
}
