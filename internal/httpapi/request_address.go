package httpapi

import (
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// maxForwarded is how many addresses of X-Forwarded-For are read, from the last.
const maxForwarded = 16

// addressOf returns the address of the caller as a text. proxy is the address of the connection if
// it differs from the caller's.
func (s *Server) addressOf(c *fiber.Ctx) (address, proxy string) {
	caller, peer := s.callerOf(c)
	if caller == peer {
		return peer.String(), ""
	}
	return caller.String(), peer.String()
}

// callerOf returns the addresses of the caller and of the connection. The caller's is that of the
// connection or, if that is a trusted proxy's, the last untrusted address in X-Forwarded-For.
func (s *Server) callerOf(c *fiber.Ctx) (caller, peer netip.Addr) {
	peer, _ = netip.AddrFromSlice(c.Context().RemoteIP())
	peer = peer.Unmap()
	if s.trusts(peer) {
		return s.forwarded(c, peer), peer
	}
	return peer, peer
}

// forwarded reads X-Forwarded-For from the last address backwards, while the proxy that wrote the
// address is trusted. It stops at an address that it can't parse: nobody vouches for earlier ones.
func (s *Server) forwarded(c *fiber.Ctx, peer netip.Addr) netip.Addr {
	var all []string
	for _, header := range c.Request().Header.PeekAll(fiber.HeaderXForwardedFor) {
		all = append(all, strings.Split(string(header), ",")...)
	}
	caller := peer
	for i := len(all) - 1; i >= max(0, len(all)-maxForwarded) && s.trusts(caller); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(all[i]))
		if err != nil {
			break
		}
		caller = next.Unmap().WithZone("")
	}
	return caller
}

func (s *Server) trusts(a netip.Addr) bool {
	for _, p := range s.cfg.TrustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
