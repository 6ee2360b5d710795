package tracing

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncflow/asyncflow"
)

// Call is a call of the API, which may be recorded when it is over. Its methods do nothing for a
// nil Call. It is not for concurrent use.
type Call struct {
	tracer *Tracer
	Request
	start time.Time
	given trace.SpanContext // by the caller, in the header traceparent

	decided bool // whether it is recorded
	sampled bool
	own     trace.SpanContext

	operation string // of messaging; "": none
	task      asyncflow.TaskID
	count     int    // of tasks; 0: one, or none
	seq       int    // of the attempt on which it reports; 0: it is no report
	attempt   int    // of the stage
	submit    string // the trace of the task
	stage     string
	outcome   asyncflow.OutcomeKind
	empty     bool // it asked for tasks, and got none
	links     []trace.Link
}

// Request is what is known of a call when it begins.
type Request struct {
	Method, Route string // as in the contract: there are no values in the route
	Tenant        string // "": the caller acts for none
	// Traceparent and Tracestate are the headers of the names.
	Traceparent, Tracestate string
}

// Begin begins a call. t is not nil.
func (t *Tracer) Begin(r Request) *Call {
	c := &Call{tracer: t, Request: r, start: time.Now()}
	if t.settings.propagates {
		c.given = readContext(r.Traceparent, r.Tracestate)
	}
	return c
}

// Submits gives new tasks the call as their trace, if it is recorded and contexts are propagated: a
// task's trace goes to workers. A task with a trace keeps it; a call without a header traceparent,
// for one task, is a part of that trace.
func (c *Call) Submits(tasks []asyncflow.NewTask) {
	if c == nil {
		return
	}
	c.operation = "submit"
	if len(tasks) == 1 && !c.given.IsValid() {
		c.given = readContext(tasks[0].Options.Trace, "")
	}
	if len(tasks) > 1 {
		c.count = len(tasks)
	}
	if c.decide(); !c.sampled || !c.tracer.settings.propagates {
		return
	}
	own := traceparent(c.own)
	for i := range tasks {
		tasks[i].Options.AddTrace(own)
	}
}

// Made adds the id of the task that the call submitted.
func (c *Call) Made(id asyncflow.TaskID) {
	if c != nil {
		c.task = id
	}
}

// Reports says on which attempt the call reports.
func (c *Call) Reports(id asyncflow.TaskID, seq int) {
	if c != nil {
		c.operation = "report"
		c.task, c.seq = id, seq
	}
}

// Settles adds what is known of the attempt that a report ends.
func (c *Call) Settles(l *asyncflow.Lease, kind asyncflow.OutcomeKind) {
	if c != nil {
		c.stage, c.attempt = l.Stage, l.Attempt
		c.submit = l.Options.Trace
		c.outcome = kind
	}
}

// HandsOut records the attempts of tasks that a claim hands out, and tells the deliveries. The call
// is recorded with them; one that hands out nothing isn't recorded.
func (c *Call) HandsOut(all []asyncflow.Delivery) {
	if c == nil {
		return
	}
	c.operation = "claim"
	c.empty = len(all) == 0
	c.count = len(all)
	attempts := c.tracer.attempts(all)
	if len(attempts) > 0 {
		c.decided, c.sampled = true, true
		c.choose(newTraceID())
	}
	now := time.Now()
	for i := range attempts {
		a := &attempts[i].span
		c.links = append(c.links, a.links...)
		a.links = append(a.links, trace.Link{SpanContext: c.own})
		a.start, a.end = now, now
		c.tracer.record(a)
	}
}

// decide decides whether the call is recorded, and then chooses its ids. A report is recorded if
// its caller wants it so, or if the attempt is.
func (c *Call) decide() {
	if c.decided {
		return
	}
	c.decided = true
	in := newTraceID()
	var over, alsoOver bool
	c.sampled, over = c.tracer.sampled(c.Tenant, c.given, in)
	if c.seq > 0 {
		attemptIn, attempt := c.tracer.attemptIDs(c.Tenant, c.task, c.seq)
		if !c.sampled {
			submit := readContext(c.submit, "")
			c.sampled, alsoOver = c.tracer.sampled(c.Tenant, submit, attemptIn)
		}
		if c.sampled {
			link := trace.Link{SpanContext: sampledContext(attemptIn, attempt)}
			c.links = append(c.links, link)
		}
	}
	if !c.sampled {
		c.tracer.counts.countOver(over || alsoOver)
		return
	}
	c.choose(in)
}

// choose chooses the ids of the call. in is its trace, if the caller gave none.
func (c *Call) choose(in trace.TraceID) {
	if c.given.IsValid() {
		in = c.given.TraceID()
	}
	c.own = sampledContext(in, newSpanID())
}

// End records the call, if it is sampled. status is that of the answer, and failure the kind of a
// failure of ours; "": there was none.
func (c *Call) End(status int, failure string) {
	if c == nil || c.empty {
		return
	}
	if c.decide(); !c.sampled {
		return
	}
	c.tracer.record(&span{
		name:       c.Method + " " + c.Route,
		kind:       trace.SpanKindServer,
		own:        c.own,
		parent:     c.given,
		links:      c.links,
		start:      c.start,
		end:        time.Now(),
		attributes: append(c.attributes(), semconv.HTTPResponseStatusCode(status)),
		failure:    failure,
	})
}

func (c *Call) attributes() []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 16),
		semconv.HTTPRequestMethodKey.String(c.Method), semconv.HTTPRoute(c.Route))
	if c.Tenant != "" {
		all = append(all, tenantKey.String(c.Tenant))
	}
	if c.operation != "" {
		all = append(all, semconv.MessagingSystemKey.String("asyncflow"),
			semconv.MessagingOperationName(c.operation))
	}
	if c.task.Type != "" {
		all = append(all, semconv.MessagingDestinationName(c.task.Type),
			semconv.MessagingMessageID(c.task.String()))
	}
	if c.count > 0 {
		all = append(all, semconv.MessagingBatchMessageCount(c.count))
	}
	if c.seq > 0 {
		all = append(all, seqKey.Int(c.seq))
	}
	if c.outcome != "" {
		all = append(all, stageKey.String(c.stage), attemptKey.Int(c.attempt),
			outcomeKey.String(string(c.outcome)))
	}
	return all
}
