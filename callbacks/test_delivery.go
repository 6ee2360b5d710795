package callbacks

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// A test delivery tries out an endpoint, outside of any task. It differs from a real one in three
// ways: "test": true is in its body, testHeader in its request, and TestToken in its callback.

const (
	// TestTime bounds a test delivery, including its answer.
	TestTime = 20 * time.Second
	// TestToken is in the callback of a test delivery. It is no completion token: no report is
	// accepted with it.
	TestToken = "test"

	testHeader = "Asyncflow-Test"
	// maxTestBody and maxTestHeaders bound what is shown of an answer, in bytes.
	maxTestBody    = 16 << 10
	maxTestHeaders = 8 << 10
)

// TestID returns a task id for a test delivery. No task goes by it, because the position 0 is no
// roll's.
func TestID(taskType string) asyncflow.TaskID {
	return asyncflow.NewTaskID(taskType, 0, 1+rand.Int64N(asyncflow.FirstBySQL))
}

// Tested is what a test delivery sent, and what came back. The endpoint's secrets are masked.
type Tested struct {
	URL     string            // "": the request could not be made
	Headers map[string]string // of the request, without Host and Content-Length
	Body    string            // of the request
	Answer  TestedAnswer
	Outcome asyncflow.Outcome // of a delivery with such an answer; without the output
}

// TestedAnswer is the answer to a test delivery.
type TestedAnswer struct {
	Status    int // 0: there was none
	Headers   map[string]string
	Body      string // valid UTF-8
	Truncated bool   // Body or Headers lack something
}

// Test sends a test delivery. It ends within the delivery's timeout, or when ctx ends.
func (s *Sender) Test(ctx context.Context, d asyncflow.Delivery) Tested {
	d.Test = true
	start := time.Now()
	outcomes, x := s.attempt(ctx, []asyncflow.Delivery{d}, newLimit(d.Timeout))
	t := Tested{Outcome: outcomes[0]}
	t.Outcome.Endpoint, t.Outcome.Duration = d.Endpoint.URL, time.Since(start)
	t.Outcome.Output = nil
	if x.request.URL == nil {
		return t
	}
	t.URL, t.Headers, t.Body = d.Endpoint.URL, x.shownHeaders(), string(x.request.Body)
	t.Answer = x.shownAnswer()
	return t
}

// shownHeaders returns the headers of the request. The ones from the endpoint's settings are
// masked.
func (x *exchange) shownHeaders() map[string]string {
	out := make(map[string]string, len(x.request.Headers))
	for _, h := range x.request.Headers {
		switch h.Name {
		case "Content-Type", "User-Agent", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
			testHeader:
		default:
			h.Value = asyncflow.Mask
		}
		out[h.Name] = h.Value
	}
	return out
}

// shownAnswer returns as much of the answer as is shown.
func (x *exchange) shownAnswer() TestedAnswer {
	a := x.answer
	body := strings.ToValidUTF8(string(a.Body), "\uFFFD")
	if a.BodyErr != nil { // it may end within a secret
		body = strings.TrimSuffix(x.scrub(body+ellipsis), ellipsis)
	} else {
		body = x.scrub(body)
	}
	out := TestedAnswer{
		Status:    a.Status,
		Headers:   map[string]string{},
		Body:      cut(body, maxTestBody),
		Truncated: a.BodyErr != nil || len(body) > maxTestBody,
	}
	left := maxTestHeaders
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		value := x.scrub(strings.ToValidUTF8(strings.Join(a.Header[name], ", "), "\uFFFD"))
		if name == "Set-Cookie" { // it may be a login
			value = asyncflow.Mask
		}
		if left -= len(name) + len(value); left < 0 {
			out.Truncated = true
			break
		}
		out.Headers[name] = value
	}
	return out
}

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
