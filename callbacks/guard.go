package callbacks

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/asyncflow/asyncflow"
)

// dialTimeout bounds the making of a connection, before TLS.
const dialTimeout = 10 * time.Second

// guard dials where the operator's policy lets deliveries go. It looks at the address
// of each socket before it is connected: what a name resolved to a moment ago, or will
// in a moment, is of no matter, and of several addresses each is looked at. A
// connection that is kept stays with the address that it was opened to.
type guard struct {
	egress asyncflow.Egress
	public *ssrf.Guardian
	dialer net.Dialer // what its Control says comes after the policy
}

// hostServices are public addresses at which a cloud's machines reach what is theirs alone. Azure's
// hands out certificates and settings of the machine. The registries of special networks don't
// list them.
var hostServices = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32")}

func newGuard(cfg Config) *guard {
	return &guard{
		egress: cfg.Egress,
		public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(hostServices...)),
		dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second, Resolver: cfg.Resolver},
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

// What a tenant hears when the policy is against an address. Which one it was, and
// what listens there, is nobody's business.
var (
	errPrivate = errors.New("the endpoint's address is in a network that deliveries must not reach " +
		"(the operator's --allow-private-networks)")
	errRule = errors.New("the operator lets no delivery go to the endpoint's address " +
		"(--egress-allow, --egress-deny)")
)

// check holds an address that is about to be connected to against the policy.
func (g *guard) check(host, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errPrivate
	}
	special := g.public.SafeAddr(to.Addr()) != nil
	switch {
	case g.egress.Permits(host, to, special):
		return nil
	case special && !g.egress.AllowPrivate:
		return errPrivate
	}
	return errRule
}
