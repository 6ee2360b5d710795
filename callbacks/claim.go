package callbacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// A claimed delivery may be passed on to a worker that a Sender can't reach. The node signs it, and
// reads the answer. The program between them forwards both: see Forward.

// SignClaim returns the headers of the request that a push of a claimed delivery would be, by their
// names. e is its stage's endpoint for listening, and body what AppendDelivery appended.
func (s *Sender) SignClaim(
	d *asyncflow.Delivery, e *asyncflow.Endpoint, body []byte,
) (map[string]string, error) {
	to, err := s.open(d.Tenant, e)
	if err != nil {
		return nil, err
	}
	m := message{id: deliveryID(d.Lease), at: d.At, body: body}
	headers, err := s.appendHeaders(make(transport.Headers, 0, 8), e, to, m)
	if err != nil {
		return nil, err
	}
	trace := cmp.Or(d.Traceparent, d.Lease.Options.Trace)
	if trace != "" && headers.Get(traceHeader) == "" {
		headers.Set(traceHeader, trace)
	}
	out := make(map[string]string, len(headers))
	for _, h := range headers {
		out[h.Name] = h.Value
	}
	return out, nil
}

// Answer is what a worker answered to a request that was forwarded to it.
type Answer struct {
	Status      int // 0: there was no answer
	ContentType string
	RetryAfter  string // the header
	Body        []byte
	Error       string // why there was no answer, or why Body isn't all of its body
}

// ReadClaim returns the outcome that a worker's answer to a claimed delivery means: the same as
// after a push.
func (s *Sender) ReadClaim(a Answer) asyncflow.Outcome {
	if a.Status == 0 {
		return failed(errors.New(a.Error))
	}
	in := transport.Answer{Status: a.Status, Body: a.Body, Header: http.Header{
		"Content-Type": {a.ContentType}, "Retry-After": {a.RetryAfter}}}
	switch most := s.maxAnswer(1); {
	case a.Error != "":
		in.BodyErr = errors.New(a.Error)
	case len(a.Body) > most:
		in.Body = a.Body[:most]
		in.BodyErr = fmt.Errorf("%w: the limit is %d bytes", transport.ErrTooLarge, most)
	}
	o, more := readStatus(in, answerFields)
	if more {
		o = readAnswer(o, a.ContentType, in.Body, s.cfg.MaxOutput)
	}
	return o
}

// Forward sends a request that a node signed to a worker, as a push would, and returns the answer.
// It ends within the timeout, or when ctx ends. The error says that the worker could not be
// reached, so that it saw nothing of the request.
func (s *Sender) Forward(
	ctx context.Context, to *url.URL, headers map[string]string, body []byte, timeout time.Duration,
) (Answer, error) {
	l := newLimit(timeout)
	r := transport.Request{URL: to, Body: body, Deadline: l.deadline, MaxAnswer: s.maxAnswer(1)}
	for name, value := range headers {
		r.Headers.Set(name, value)
	}
	a, err := s.routes.plain.Post(ctx, r)
	if err == nil && isCutOff(a) && l.hasEnded(ctx) {
		err = a.BodyErr
	}
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return Answer{}, err
		}
		return Answer{Error: l.reason(ctx, err).Error()}, nil
	}
	out := Answer{Status: a.Status, ContentType: a.ContentType(), RetryAfter: a.RetryAfter(),
		Body: a.Body}
	if a.BodyErr != nil {
		out.Error = a.BodyErr.Error()
	}
	return out, nil
}
