package httpapi

import (
	"fmt"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
)

// harden sets what the framework has no setting for.
func (s *Server) harden(server *fasthttp.Server) {
	server.HeaderReceived = s.allowance
	server.SecureErrorLogMessage = true // no part of a request that can't be read, in the error about it
	handler, failed := server.Handler, server.ErrorHandler
	server.Handler = func(c *fasthttp.RequestCtx) {
		defer s.shield(c)
		handler(c)
	}
	server.ErrorHandler = func(c *fasthttp.RequestCtx, err error) {
		defer s.shield(c)
		failed(c, err)
	}
}

// shield makes a 500 of a panic outside of the handlers, such as one in the answer to a
// request that can't be read: nothing else would stop it from ending the node.
func (s *Server) shield(c *fasthttp.RequestCtx) {
	p := recover()
	if p == nil {
		return
	}
	body, _ := encode(problemOf(&asyncflow.Error{Code: asyncflow.CodeInternal, Err: fmt.Errorf("%v", p)}))
	c.Response.Reset()
	c.SetStatusCode(fasthttp.StatusInternalServerError)
	c.SetContentType("application/problem+json")
	c.SetBody(body)
	c.SetConnectionClose()
	defer func() { _ = recover() }() // the log may be what is broken
	s.log.Error("panic outside of a request's handler", "panic", p, "stack", string(debug.Stack()))
}
