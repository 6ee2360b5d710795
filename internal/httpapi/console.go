package httpapi

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow/internal/httpapi/internal/listener"
)

// Console is the web console of a node, which is no part of the contract.
type Console interface {
	// Serve answers a request for /console or a path below it. It reads no body. from is the
	// address of the caller or, if that is an IPv6 address, its /64.
	Serve(c *fiber.Ctx, from netip.Addr) error
	// Token returns the token of the session that a call without Authorization belongs to; "" if
	// there is none. An error refuses the call. The token is not verified yet.
	Token(c *fiber.Ctx) (string, error)
}

// console passes the console's requests to it, and leads a browser at / there.
func (s *Server) console(c *fiber.Ctx) error {
	if !s.forConsole(c.Context()) {
		return c.Next()
	}
	if c.Path() == "/" {
		c.Vary(fiber.HeaderAccept)
		return c.Redirect("/console")
	}
	caller, _ := s.callerOf(c)
	return s.cfg.Console.Serve(c, listener.HolderOf(caller))
}

// forConsole reports whether a request is for the console, if there is one.
func (s *Server) forConsole(c *fasthttp.RequestCtx) bool {
	path := c.URI().PathOriginal()
	return s.cfg.Console != nil && (string(path) == "/console" ||
		bytes.HasPrefix(path, []byte("/console/")) || string(path) == "/" && wantsPage(c))
}

// wantsPage reports whether a request is for a page that a browser shows.
func wantsPage(c *fasthttp.RequestCtx) bool {
	return (c.IsGet() || c.IsHead()) &&
		strings.Contains(string(c.Request.Header.Peek(fiber.HeaderAccept)), fiber.MIMETextHTML)
}
