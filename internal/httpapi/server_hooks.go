package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/getkin/kin-openapi/routers"
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
)

// installHooks sets what fiber offers no setting for.
func (s *Server) installHooks(server *fasthttp.Server) {
	server.HeaderReceived = func(h *fasthttp.RequestHeader) (unchanged fasthttp.RequestConfig) {
		if !h.IsHTTP11() { // it would take the interim answer for the answer (RFC 9110, 10.1.1)
			h.Del(fasthttp.HeaderExpect)
		}
		return unchanged
	}
	// Errors about requests that can't be read must not show any part of the request.
	server.SecureErrorLogMessage = true
	handler, failed := server.Handler, server.ErrorHandler
	server.Handler = func(c *fasthttp.RequestCtx) {
		defer s.recoverOutside(c)
		if slices.Contains(fiber.DefaultMethods, string(c.Method())) {
			handler(c)
		} else { // fiber would answer it with plain text
			writeProblem(c, asyncflow.InvalidField("method", "is not known"))
			c.SetConnectionClose()
		}
		endBody(c)
		// No browser takes an answer, which may contain a tenant's text, for a page or a script.
		c.Response.Header.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		if s.draining.Load() {
			c.SetConnectionClose()
		}
		if Inspect != nil && !s.forConsole(c) {
			s.inspect(c)
		}
	}
	server.ErrorHandler = func(c *fasthttp.RequestCtx, err error) {
		defer s.recoverOutside(c)
		failed(c, err)
		c.Response.Header.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		if Inspect != nil {
			s.inspect(c)
		}
	}
}

// recoverOutside turns a panic outside of the handlers into a 500, such as a panic in the answer to
// a request that can't be read. Nothing else would keep that panic from ending the node.
func (s *Server) recoverOutside(c *fasthttp.RequestCtx) {
	p := recover()
	if p == nil {
		return
	}
	writeProblem(c, &asyncflow.Error{Code: asyncflow.CodeInternal, Err: fmt.Errorf("%v", p)})
	c.SetConnectionClose()
	defer func() { _ = recover() }() // the log itself may panic
	s.log.Error("panic outside of a request's handler", "panic", p, "stack", string(debug.Stack()))
}

// writeProblem answers with a problem document where no handler can.
func writeProblem(c *fasthttp.RequestCtx, err error) {
	p := problemOf(err)
	body, _ := encode(p) // plain fields
	c.Response.Reset()
	c.SetStatusCode(p.Status)
	c.SetContentType(problemType)
	c.Response.Header.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.SetBody(body)
}

// refusal is a whole HTTP answer for a connection over the limits; its request isn't read.
func refusal(reason string) []byte {
	p := problemOf(asyncflow.Errorf(asyncflow.CodeUnavailable, "%s", reason))
	body, _ := encode(p) // plain fields
	head := "HTTP/1.1 " + strconv.Itoa(p.Status) + " " + http.StatusText(p.Status) +
		"\r\nContent-Type: " + problemType + "\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\nX-Content-Type-Options: nosniff\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
	return append([]byte(head), body...)
}

// Inspect, if it isn't nil, is called with each answer of the servers of this process before the
// answer is sent. Test programs use it to check answers against the contract. Set it before the
// first server is made.
var Inspect func(Answer)

// InspectEvent, if it isn't nil, is called with each event of a stream, including the blank line
// that ends the event.
var InspectEvent func(event []byte)

// Answer is an answer to a request.
type Answer struct {
	Method, Path string
	Route        *routers.Route // nil if the request is no call of the API
	Status       int
	Header       http.Header
	Body         []byte // nil for a stream: its events go to InspectEvent
}

func (s *Server) inspect(c *fasthttp.RequestCtx) {
	a := Answer{
		Method: string(c.Method()),
		Path:   string(c.URI().PathOriginal()),
		Status: c.Response.StatusCode(),
		Header: http.Header{},
	}
	for name, value := range c.Response.Header.All() {
		a.Header.Add(string(name), string(value))
	}
	if sent, ok := c.Response.BodyStream().(*lentAnswer); ok {
		a.Body = bytes.Clone(sent.doc)
	} else if !c.Response.IsBodyStream() {
		a.Body = append([]byte{}, c.Response.Body()...)
	}
	if o, _ := s.contract.Find(a.Method, a.Path); o != nil {
		a.Route = o.Route
	}
	Inspect(a)
}
