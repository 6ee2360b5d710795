package httpapi

import (
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// maxForwarded is how many addresses of X-Forwarded-For are looked at, from the last.
const maxForwarded = 16

// addressOf returns the address of the caller: that of the connection or, if that is a
// trusted proxy's, the last one in X-Forwarded-For that isn't. proxy is the connection's
// where they differ.
func (s *Server) addressOf(c *fiber.Ctx) (address, proxy string) {
	peer, _ := netip.AddrFromSlice(c.Context().RemoteIP())
	peer = peer.Unmap()
	caller := peer
	if s.trusts(peer) {
		caller = s.forwarded(c, peer)
	}
	if caller == peer {
		return peer.String(), ""
	}
	return caller.String(), peer.String()
}

// forwarded goes from the last address of X-Forwarded-For back for as long as who wrote
// it is trusted. What can't be read ends it: nobody vouches for what stands before.
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
