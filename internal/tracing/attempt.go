package tracing

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncflow/asyncflow"
)

// Names of attributes without a convention.
const (
	tenantKey  = attribute.Key("asyncflow.tenant")
	stageKey   = attribute.Key("asyncflow.stage")
	attemptKey = attribute.Key("asyncflow.attempt")
	seqKey     = attribute.Key("asyncflow.seq")
	outcomeKey = attribute.Key("asyncflow.outcome")
)

// Sender makes attempts, and records them.
type Sender struct {
	tracer *Tracer
	next   Deliverer
}

// Deliverer makes attempts: see dispatcher.Sender.
type Deliverer interface {
	Send(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome
}

// NewSender returns a sender in front of another one. t is not nil.
func NewSender(t *Tracer, next Deliverer) *Sender { return &Sender{t, next} }

// Send makes attempts. It sets which spans they belong to, in the deliveries and the outcomes.
//
// The span of an attempt is a root with a link to what the task was submitted with. If several
// deliveries are in a request, it gets a span of its own: the attempts are linked to that, and it
// is linked to what their tasks were submitted with.
func (s *Sender) Send(ctx context.Context, all []asyncflow.Delivery) (o []asyncflow.Outcome) {
	attempts := s.tracer.attempts(all)
	if len(attempts) == 0 {
		return s.next.Send(ctx, all)
	}
	start := time.Now()
	request := attempts[0].own
	if len(all) > 1 {
		request = sampledContext(newTraceID(), newSpanID())
		all[0].RequestTrace = s.tracer.header(request)
	}
	defer func() { // even if it panics
		end := time.Now()
		for i := range attempts {
			a := &attempts[i]
			a.start, a.end = start, end
			a.conclude(o)
		}
		s.tracer.recordRequest(request, all, attempts, o)
	}()
	return s.next.Send(ctx, all)
}

// attempt is the attempt of a task, which is recorded.
type attempt struct {
	span
	index int // of its delivery
}

// attempts returns the attempts of deliveries that are recorded, and tells the deliveries.
func (t *Tracer) attempts(all []asyncflow.Delivery) (recorded []attempt) {
	for i := range all {
		d := &all[i]
		in, own := t.attemptIDs(d.Tenant, d.Lease.ID, d.Lease.Seq)
		submit := readContext(d.Lease.Options.Trace, "")
		if yes, over := t.sampled(d.Tenant, submit, in); !yes {
			t.counts.countOver(over)
			continue
		}
		a := attempt{index: i}
		a.name = "attempt " + d.Lease.ID.Type
		a.kind = trace.SpanKindInternal
		a.own = sampledContext(in, own)
		a.attributes = append(make([]attribute.KeyValue, 0, 16),
			semconv.MessagingSystemKey.String("asyncflow"),
			semconv.MessagingOperationName("attempt"),
			semconv.MessagingDestinationName(d.Lease.ID.Type),
			semconv.MessagingMessageID(d.Lease.ID.String()),
			tenantKey.String(d.Tenant),
			stageKey.String(d.Lease.Stage),
			attemptKey.Int(d.Lease.Attempt),
			seqKey.Int(d.Lease.Seq))
		if submit.IsValid() {
			a.links = append(a.links, trace.Link{SpanContext: submit})
		}
		d.Traceparent = t.header(a.own)
		recorded = append(recorded, a)
	}
	return recorded
}

// header returns a span context as workers get it; "": they get none.
func (t *Tracer) header(c trace.SpanContext) string {
	if !t.settings.propagates {
		return ""
	}
	return traceparent(c)
}

// conclude adds how an attempt ended, if it did.
func (a *attempt) conclude(all []asyncflow.Outcome) {
	if a.index >= len(all) {
		a.failure = "panic"
		return
	}
	o := &all[a.index]
	o.AttemptTrace = a.own.TraceID().String()
	a.attributes = append(a.attributes, outcomeKey.String(string(o.Kind)))
	a.failure = failureOf(*o)
}

// failureOf returns the kind of failure of an outcome, without a word that a worker wrote; "": it
// is none.
func failureOf(o asyncflow.Outcome) string {
	switch {
	case o.EndpointFailed():
		return o.EndpointFailure().String()
	case o.Kind == asyncflow.OutcomeFailed, o.Kind == asyncflow.OutcomeRejected:
		return string(o.Kind)
	}
	return ""
}

// recordRequest records a request with its attempts. If there is one delivery in it, that is the
// same.
func (t *Tracer) recordRequest(
	own trace.SpanContext, all []asyncflow.Delivery, attempts []attempt, o []asyncflow.Outcome,
) {
	first := &attempts[0]
	request := &first.span
	if len(all) > 1 {
		request = &span{own: own, start: first.start, end: first.end, failure: requestFailure(o),
			attributes: []attribute.KeyValue{
				semconv.MessagingSystemKey.String("asyncflow"),
				semconv.MessagingDestinationName(all[0].Lease.ID.Type),
				semconv.MessagingBatchMessageCount(len(all)),
				tenantKey.String(all[0].Tenant),
				stageKey.String(all[0].Lease.Stage)}}
		for i := range attempts {
			request.links = append(request.links, attempts[i].links...)
			attempts[i].links = append(attempts[i].links, trace.Link{SpanContext: own})
		}
		for i := range attempts {
			t.record(&attempts[i].span)
		}
	}
	request.name = "deliver " + all[0].Lease.ID.Type
	request.kind = trace.SpanKindClient
	request.attributes = append(request.attributes, httpAttributes(&all[0], o)...)
	t.record(request)
}

// requestFailure returns why a request failed, with all of its deliveries.
func requestFailure(o []asyncflow.Outcome) string {
	if len(o) == 0 {
		return "panic"
	}
	if o[0].EndpointFailed() {
		return failureOf(o[0])
	}
	return ""
}

// httpAttributes says where a request went, without the path and the query of the URL: they may be
// secret.
func httpAttributes(d *asyncflow.Delivery, o []asyncflow.Outcome) []attribute.KeyValue {
	all := []attribute.KeyValue{semconv.HTTPRequestMethodPost}
	if u, err := url.Parse(d.Endpoint.URL); err == nil {
		all = append(all, semconv.ServerAddress(u.Hostname()), semconv.ServerPort(portOf(u)))
	}
	if len(o) > 0 && o[0].Status != 0 {
		all = append(all, semconv.HTTPResponseStatusCode(o[0].Status))
	}
	return all
}

func portOf(u *url.URL) int {
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}
