package callbacks

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
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

// appendHeaders appends the headers that every request to an endpoint has.
func (s *Sender) appendHeaders(
	h transport.Headers, e *asyncflow.Endpoint, to *opened, m message,
) (transport.Headers, error) {
	h = append(h, transport.Header{Name: "Content-Type", Value: "application/json"}, s.userAgent)
	return to.sign(h, e, m.id, m.at, m.body)
}

// limit is how long a request may take, including the login before it and the reading of its
// answer.
type limit struct {
	timeout  time.Duration
	deadline time.Time
}

// newLimit returns the limit of a request that begins now.
func newLimit(timeout time.Duration) limit {
	return limit{timeout, time.Now().Add(timeout)}
}

// hasEnded reports whether a request with this limit and context must have ended by now.
func (l limit) hasEnded(ctx context.Context) bool {
	return ctx.Err() != nil || !time.Now().Before(l.deadline)
}

// reason says in plain words why a request got no answer.
func (l limit) reason(ctx context.Context, err error) error {
	stopped := ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case errors.Is(err, errPrivate):
		return errPrivate
	case errors.Is(err, errRule):
		return errRule
	case stopped:
		return errors.New("the node stopped before the answer came")
	case l.hasEnded(ctx):
		return timeoutError{l.timeout}
	}
	return err
}

// timeoutError says that there was no answer within a time.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string { return "no answer within " + e.limit.String() }

// loginError is why there was no token for an endpoint.
type loginError struct{ error }

func (e loginError) Unwrap() error { return e.error }

// policyError is why the operator's policy refuses a URL.
type policyError struct{ why string }

func (e policyError) Error() string { return e.why }

// failureCode returns the code of an attempt that got no answer.
func failureCode(err error) asyncflow.FailureCode {
	var late timeoutError
	var policy policyError
	var login loginError
	var handshake transport.HandshakeError
	var name *net.DNSError
	var network *net.OpError
	switch {
	case errors.As(err, &late):
		return asyncflow.FailureTimeout
	case errors.Is(err, errPrivate), errors.Is(err, errRule), errors.As(err, &policy):
		return asyncflow.FailureEgress
	case errors.As(err, &login):
		return asyncflow.FailureLogin
	case errors.As(err, &handshake):
		return asyncflow.FailureTLS
	case errors.As(err, &name):
		return asyncflow.FailureDNS
	case errors.Is(err, os.ErrDeadlineExceeded): // shorter than the attempt's own time
		return asyncflow.FailureTimeout
	case errors.As(err, &network) && network.Op == "dial":
		return asyncflow.FailureNoConnection
	case network != nil && network.Op == "remote error": // an alert after the handshake
		return asyncflow.FailureTLS
	case network != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.EPIPE):
		return asyncflow.FailureConnectionLost
	}
	return asyncflow.FailureOther
}
