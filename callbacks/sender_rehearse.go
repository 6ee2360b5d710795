package callbacks

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// Rehearse is Send for trying out a worker. It passes the signed request and its body to alter, and
// then sends the request; an error of alter ends it. It doesn't apply the endpoint's settings (see
// asyncflow.Outbound).
func (s *Sender) Rehearse(
	ctx context.Context, all []asyncflow.Delivery, alter func(req *http.Request, body []byte) error,
) []asyncflow.Outcome {
	first := all[0]
	l := newLimit(all[0].Timeout)
	start := time.Now()
	ctx, cancel := context.WithDeadline(ctx, l.deadline)
	defer cancel()
	answer, err := s.rehearse(ctx, all, alter)
	if err == nil && isCutOff(answer) && l.hasEnded(ctx) {
		err = answer.BodyErr
	}
	if err != nil {
		return toAll(all, failed(l.reason(ctx, err)))
	}
	outcomes := s.read(all, answer)
	for i := range outcomes {
		outcomes[i].Endpoint, outcomes[i].Duration = first.Endpoint.URL, time.Since(start)
	}
	return outcomes
}

func (s *Sender) rehearse(
	ctx context.Context, all []asyncflow.Delivery, alter func(req *http.Request, body []byte) error,
) (a transport.Answer, err error) {
	first := all[0]
	to, err := s.open(first.Tenant, first.Endpoint)
	if err != nil {
		return a, err
	}
	body := s.body(all)
	m := message{id: deliveryID(first.Lease), at: first.At, body: body,
		maxAnswer: s.maxAnswer(len(all))}
	headers, err := s.appendHeaders(nil, first.Endpoint, to, m)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(
		ctx, http.MethodPost, first.Endpoint.URL, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	for _, h := range headers {
		req.Header[h.Name] = []string{h.Value}
	}
	if err := alter(req, body); err != nil {
		return a, err
	}
	return s.routes.plain.Do(req, m.maxAnswer)
}
