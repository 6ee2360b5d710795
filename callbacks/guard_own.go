package callbacks

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

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
		if network, err := netip.ParsePrefix(a.String()); err == nil {
			o.known = append(o.known, network.Addr().Unmap().WithZone(""))
		}
	}
	return o.known
}
