package console

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
)

// checkOrigin refuses a request of a page that isn't this server's own. It decides as
// http.CrossOriginProtection does, with two differences: a request of any method may be refused,
// and so is one that shows no origin at all. A browser that has the cookie also sends
// Sec-Fetch-Site: it sends both only to https and to this machine.
func checkOrigin(h *fasthttp.RequestHeader) error {
	refuse := func(why string, args ...any) error {
		return asyncflow.Errorf(asyncflow.CodeForbidden, "a session counts only in requests of the "+
			"console's own pages: "+why, args...)
	}
	switch site := string(h.Peek("Sec-Fetch-Site")); site {
	case "same-origin", "none":
		return nil
	case "":
	default:
		return refuse("this one comes from elsewhere (Sec-Fetch-Site: %.20s)", site)
	}
	origin := string(h.Peek(fiber.HeaderOrigin))
	if origin == "" {
		return refuse("this one has neither Sec-Fetch-Site nor Origin; a program sends Authorization")
	}
	if u, err := url.Parse(origin); err != nil || u.Host == "" || u.Host != string(h.Host()) {
		return refuse("this one comes from elsewhere (its Origin isn't this host)")
	}
	return nil
}

// proxyHeaders are what proxies add to a request, beside X-Forwarded-*.
var proxyHeaders = []string{"forwarded", "via", "x-real-ip"}

// ownMachine reports whether a request comes from this machine and names it so. The name matters:
// a name elsewhere may lead here (DNS rebinding), and the browser then takes the page from there
// for one of ours. A proxy on this machine may bring requests from elsewhere, under any name; those
// that say so, even by an empty header, don't count.
func ownMachine(ctx *fiber.Ctx) bool {
	peer, ok := netip.AddrFromSlice(ctx.Context().RemoteIP())
	if !ok || !peer.Unmap().IsLoopback() {
		return false
	}
	for name := range ctx.Request().Header.All() {
		name := strings.ToLower(string(name))
		if strings.HasPrefix(name, "x-forwarded-") || slices.Contains(proxyHeaders, name) {
			return false
		}
	}
	host := string(ctx.Request().Header.Host())
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch strings.ToLower(host) {
	case "localhost", "127.0.0.1", "::1", "[::1]":
		return true
	}
	return false
}
