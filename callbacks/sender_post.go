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
}

// post sends a signed message to an endpoint, with the endpoint's settings. It also returns the
// login that it used. The error says in plain words why there is no answer.
//
// The next request after an answer with status 401 logs in anew.
func (s *Sender) post(
	ctx context.Context, l limit, e *asyncflow.Endpoint, to *opened, m message,
) (transport.Answer, login, error) {
	headers, err := s.appendHeaders(make(transport.Headers, 0, 8), e, to, m)
	if err != nil {
		return transport.Answer{}, login{}, err
	}
	route, used := s.routes.plain, login{}
	if to.settings != nil {
		if used, err = s.tokens.apply(ctx, l, to, &headers); err != nil {
			err = loginError{err}
		} else {
			route, err = s.routes.to(to.tenant, to.settings.tls)
		}
		if err != nil {
			return transport.Answer{}, used, l.reason(ctx, err)
		}
	}
	answer, err := route.Post(ctx, transport.Request{
		URL:       to.target,
		Headers:   headers,
		Body:      m.body,
		Deadline:  l.deadline,
		MaxAnswer: m.maxAnswer,
	})
	if err == nil && answer.Status == http.StatusUnauthorized {
		used.refused()
	}
	if err == nil && isCutOff(answer) && l.over(ctx) { // the time limit cut it off
		err = answer.BodyErr
	}
	if err != nil {
		err = l.reason(ctx, err)
	}
	return answer, used, err
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
