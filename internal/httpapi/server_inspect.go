package httpapi

import (
	"net/http"

	"github.com/getkin/kin-openapi/routers"
	"github.com/valyala/fasthttp"
)

// Inspect, if it isn't nil, is called with each answer of the servers of this process
// before it is sent: test programs hold answers against the contract with it. It is set
// before the first server is made.
var Inspect func(Answer)

// InspectEvent is the same for each event of a stream, with the blank line that ends it.
var InspectEvent func(event []byte)

// Answer is an answer to a request.
type Answer struct {
	Method, Path string
	Route        *routers.Route // nil for what is no call of the API
	Status       int
	Header       http.Header
	Body         []byte // of a stream nil: its events come to InspectEvent
}

func (s *Server) inspect(c *fasthttp.RequestCtx) {
	a := Answer{Method: string(c.Method()), Path: string(c.URI().PathOriginal()), Status: c.Response.StatusCode(), Header: http.Header{}}
	for name, value := range c.Response.Header.All() {
		a.Header.Add(string(name), string(value))
	}
	if sent, ok := c.Response.BodyStream().(*lentAnswer); ok {
		a.Body = append([]byte{}, sent.doc...)
	} else if !c.Response.IsBodyStream() {
		a.Body = append([]byte{}, c.Response.Body()...)
	}
	if o, _ := s.contract.find(a.Method, a.Path); o != nil {
		a.Route = o.route
	}
	Inspect(a)
}
