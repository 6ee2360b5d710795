package httpapi

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
)

// harden sets what the framework has no setting for.
func (s *Server) harden(server *fasthttp.Server) {
	server.HeaderReceived = func(h *fasthttp.RequestHeader) (unchanged fasthttp.RequestConfig) {
		if !h.IsHTTP11() { // it would take the interim answer for the answer (RFC 9110, 10.1.1)
			h.Del(fasthttp.HeaderExpect)
		}
		return unchanged
	}
	server.SecureErrorLogMessage = true // no part of a request that can't be read, in the error about it
	handler, failed := server.Handler, server.ErrorHandler
	server.Handler = func(c *fasthttp.RequestCtx) {
		defer s.shield(c)
		if slices.Contains(fiber.DefaultMethods, string(c.Method())) {
			handler(c)
		} else { // the framework would answer it with a text
			writeProblem(c, asyncflow.InvalidField("method", "is not known"))
			c.SetConnectionClose()
		}
		endBody(c)
		if Inspect != nil {
			s.inspect(c)
		}
	}
	server.ErrorHandler = func(c *fasthttp.RequestCtx, err error) {
		defer s.shield(c)
		failed(c, err)
		if Inspect != nil {
			s.inspect(c)
		}
	}
}

// shield makes a 500 of a panic outside of the handlers, such as one in the answer to a
// request that can't be read: nothing else would stop it from ending the node.
func (s *Server) shield(c *fasthttp.RequestCtx) {
	p := recover()
	if p == nil {
		return
	}
	writeProblem(c, &asyncflow.Error{Code: asyncflow.CodeInternal, Err: fmt.Errorf("%v", p)})
	c.SetConnectionClose()
	defer func() { _ = recover() }() // the log may be what is broken
	s.log.Error("panic outside of a request's handler", "panic", p, "stack", string(debug.Stack()))
}

// writeProblem answers with a problem document where no handler can.
func writeProblem(c *fasthttp.RequestCtx, err error) {
	p := problemOf(err)
	body, _ := encode(p)
	c.Response.Reset()
	c.SetStatusCode(p.Status)
	c.SetContentType("application/problem+json")
	c.SetBody(body)
}
