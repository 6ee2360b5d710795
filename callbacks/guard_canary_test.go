package callbacks

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// canary listens on a port of every address of this machine.
type canary struct {
	port      string
	listeners []net.Listener
}

func newCanary(t *testing.T) *canary {
	four, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	c := &canary{port: strconv.Itoa(four.Addr().(*net.TCPAddr).Port),
		listeners: []net.Listener{four}}
	if six, err := net.Listen("tcp6", "[::]:"+c.port); err == nil {
		c.listeners = append(c.listeners, six)
	} else {
		t.Log("no IPv6 on this machine:", err)
	}
	t.Cleanup(func() {
		for _, l := range c.listeners {
			l.Close()
		}
	})
	return c
}

// requireUntouched checks that nobody connected: the first connection that each listener gets is
// the test's own.
func (c *canary) requireUntouched(t *testing.T) {
	t.Helper()
	for i, l := range c.listeners {
		own, err := net.Dial([]string{"tcp4", "tcp6"}[i],
			net.JoinHostPort([]string{"127.0.0.1", "::1"}[i], c.port))
		require.NoError(t, err)
		first, err := l.Accept()
		require.NoError(t, err)
		require.Equal(t, own.LocalAddr().String(), first.RemoteAddr().String(),
			"the canary was connected to")
		own.Close()
		first.Close()
	}
}

// fence stands behind the guard of a Sender, and records every address that the guard lets through.
// It lets connections to this machine pass, where the canary listens, and refuses all others: the
// tests connect to nobody else.
type fence struct {
	mu     sync.Mutex
	passed []netip.AddrPort
}

var errFence = errors.New("the test ends here")

func (f *fence) control(_, address string, _ syscall.RawConn) error {
	to := netip.MustParseAddrPort(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passed = append(f.passed, to)
	if a := to.Addr().Unmap(); a.IsLoopback() || a.IsUnspecified() {
		return nil
	}
	return errFence
}

// take returns the addresses that were let through since the last call.
func (f *fence) take() []netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.passed = nil }()
	return f.passed
}

// fenced returns a Sender and its guard, with a fence behind the guard.
func fenced(t *testing.T, cfg Config) (*Sender, *guard, *fence) {
	f := new(fence)
	g := newGuard(cfg)
	g.dialer.Control = f.control
	s := newSender(cfg, testKeys(t, nodeSecret), g.DialContext)
	t.Cleanup(s.routes.idle.Close)
	return s, g, f
}

// specialNetworks are not the public internet: the registries of IANA, written down independently
// of the guard.
var specialNetworks = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/3",
	"::/3", "4000::/2", "8000::/1", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
}

func isSpecial(a netip.Addr) bool {
	return slices.ContainsFunc(specialNetworks, func(n string) bool {
		return netip.MustParsePrefix(n).Contains(a.WithZone("").Unmap())
	})
}
