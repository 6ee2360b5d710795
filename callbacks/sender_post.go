package callbacks

import (
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// message is the content of a request to an endpoint.
type message struct {
	id        string
	at        time.Time // the time that is signed
	body      []byte
	maxAnswer int // bytes
	test      bool
	trace     string // W3C traceparent of the request; "": none
}

// exchange is a request to an endpoint with its answer.
type exchange struct {
	to      *opened
	request transport.Request // without a URL: it could not be made
	answer  transport.Answer  // without a status: there is none
	used    login
}

// scrub masks the secrets of the endpoint and of the login in a text.
func (x *exchange) scrub(text string) string { return x.to.settings.scrub(text, x.used) }

// traceHeader carries the trace of a request, unless there is such a header in the endpoint's
// settings.
const traceHeader = "traceparent"

// post sends a signed message to an endpoint, with the endpoint's settings. The error says in plain
// words why there is no answer, or not all of one.
//
// The next request after an answer with status 401 logs in anew.
func (s *Sender) post(
	ctx context.Context, l limit, e *asyncflow.Endpoint, to *opened, m message,
) (x exchange, err error) {
	x.to = to
	headers, err := s.appendHeaders(make(transport.Headers, 0, 8), e, to, m)
	if err != nil {
		return x, err
	}
	route := s.routes.plain
	if to.settings != nil {
		if x.used, err = s.tokens.apply(ctx, l, to, &headers); err != nil {
			err = loginError{err}
		} else {
			route, err = s.routes.to(to.tenant, to.settings.tls)
		}
		if err != nil {
			return x, l.reason(ctx, err)
		}
	}
	if m.test {
		headers.Set(testHeader, "true") // whatever the settings say
	}
	if m.trace != "" && headers.Get(traceHeader) == "" {
		headers.Set(traceHeader, m.trace)
	}
	x.request = transport.Request{
		URL:       to.target,
		Headers:   headers,
		Body:      m.body,
		Deadline:  l.deadline,
		MaxAnswer: m.maxAnswer,
	}
	x.answer, err = route.Post(ctx, x.request)
	if err == nil && x.answer.Status == http.StatusUnauthorized {
		x.used.refused()
	}
	if err == nil && isCutOff(x.answer) && l.hasEnded(ctx) { // the time limit cut it off
		err = x.answer.BodyErr
	}
	if err != nil {
		err = l.reason(ctx, err)
	}
	return x, err
}

// isCutOff reports whether a successful answer lacks a part of its body. The body of a 202 doesn't
// count.
func isCutOff(a transport.Answer) bool {
	return a.Status/100 == 2 && a.Status != http.StatusAccepted && a.BodyErr != nil
}

// appendHeaders appends the headers of every request to an endpoint.
func (s *Sender) appendHeaders(
	h transport.Headers, e *asyncflow.Endpoint, to *opened, m message,
) (transport.Headers, error) {
	h = append(h, transport.Header{Name: "Content-Type", Value: "application/json"}, s.userAgent)
	return to.sign(h, e, m.id, m.at, m.body)
}
