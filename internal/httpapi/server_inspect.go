package httpapi

import (
	"bytes"
	"net/http"

	"github.com/getkin/kin-openapi/routers"
	"github.com/valyala/fasthttp"
)

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
