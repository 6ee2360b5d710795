package httpapi

import (
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Console is the web console of a node, which is no part of the contract.
type Console interface {
	// Serve answers a request for /console or a path below it. It reads no body.
	Serve(c *fiber.Ctx) error
	// Token returns the token of the session that a call without Authorization belongs to; "" if
	// there is none. An error refuses the call. The token is not verified yet.
	Token(c *fiber.Ctx) (string, error)
}

// console passes the console's requests to it.
func (s *Server) console(c *fiber.Ctx) error {
	if !s.forConsole(c.Path()) {
		return c.Next()
	}
	return s.cfg.Console.Serve(c)
}

// forConsole reports whether a path is the console's, if there is one.
func (s *Server) forConsole(path string) bool {
	return s.cfg.Console != nil && (path == "/console" || strings.HasPrefix(path, "/console/"))
}
