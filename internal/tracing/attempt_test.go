package tracing_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/otlptest"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

// sends is a sender of a test.
type sends func(all []asyncflow.Delivery) []asyncflow.Outcome

func (f sends) Send(_ context.Context, all []asyncflow.Delivery) []asyncflow.Outcome {
	return f(all)
}

const submitTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// deliveries returns deliveries of as many tasks as there are traces.
func deliveries(traces ...string) []asyncflow.Delivery {
	all := make([]asyncflow.Delivery, len(traces))
	for i, trace := range traces {
		l := asyncflow.Lease{ID: asyncflow.NewTaskID("mail", 1, int64(42+i)), Seq: 7,
			Stage: "send", Attempt: 2, Context: []byte(`"context-secret"`)}
		l.Options.Trace = trace
		all[i] = asyncflow.Delivery{Tenant: "acme", Lease: l, Endpoint: &asyncflow.Endpoint{
			URL: "https://user:url-secret@worker.example.com/path-secret?token=query-secret"}}
	}
	return all
}

func outcomes(n int, o asyncflow.Outcome) []asyncflow.Outcome {
	all := make([]asyncflow.Outcome, n)
	for i := range all {
		all[i] = o
	}
	return all
}

// The span of an attempt is a root with a link to the submit, and the worker gets it.
func TestAttempt(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, map[string]string{"OTEL_SERVICE_NAME": "tasks",
		"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b", "OTEL_RESOURCE_ATTRIBUTES": "region=eu",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"})
	all := deliveries(submitTrace)
	var given string
	o := tracing.NewSender(tracer, sends(func(all []asyncflow.Delivery) []asyncflow.Outcome {
		given = all[0].Traceparent
		return outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 503,
			Error: "error-secret"})
	})).Send(t.Context(), all)
	stop(tracer, patience)

	require.Len(t, r.Spans(), 1)
	s := r.Spans()[0]
	assert.Equal(t, "deliver mail", s.Name)
	assert.Equal(t, "SPAN_KIND_CLIENT", s.Kind)
	assert.Empty(t, s.Parent)
	assert.Equal(t, "00-"+s.Trace+"-"+s.ID+"-01",
		given)
	assert.NotContains(t, given, submitTrace[3:35], "it is a trace of its own")
	require.Len(t, s.Links, 1)
	assert.Equal(t, submitTrace[3:35], s.Links[0].Trace)
	assert.Equal(t, submitTrace[36:52], s.Links[0].ID)
	assert.Equal(t, map[string]string{
		"messaging.system": "asyncflow", "messaging.operation.name": "attempt",
		"messaging.destination.name": "mail", "messaging.message.id": "mail.1.42",
		"asyncflow.tenant": "acme", "asyncflow.stage": "send", "asyncflow.attempt": "2",
		"asyncflow.seq": "7", "asyncflow.outcome": "failed", "error.type": "503",
		"http.request.method": "POST", "http.response.status_code": "503",
		"server.address": "worker.example.com", "server.port": "443",
	}, s.Attributes)
	assert.True(t, s.Failed)
	assert.NotContains(t, fmt.Sprint(s), "secret")
	assert.False(t, s.End.Before(s.Start))
	assert.Equal(t, s.Trace, o[0].AttemptTrace)
	assert.Equal(t, "tasks", r.Service()["service.name"])
	assert.Equal(t, "eu", r.Service()["region"])
	assert.Equal(t, "node-1", r.Service()["service.instance.id"])
	assert.Equal(t, "a b", r.Header().Get("X-Key"))
}

// An attempt of a task without a trace is recorded, too, without links.
func TestAttemptWithoutSubmit(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, nil)
	tracing.NewSender(tracer, sends(func(all []asyncflow.Delivery) []asyncflow.Outcome {
		return outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202})
	})).Send(t.Context(), deliveries(""))
	stop(tracer, patience)
	require.Len(t, r.Spans(), 1)
	assert.Empty(t, r.Spans()[0].Links)
	assert.False(t, r.Spans()[0].Failed)
}

// A request with several deliveries gets a span, and so does each attempt that is sampled.
func TestBatch(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, nil)
	notSampled := submitTrace[:53] + "00"
	all := deliveries(submitTrace, notSampled, submitTrace)
	tracing.NewSender(tracer, sends(func(all []asyncflow.Delivery) []asyncflow.Outcome {
		return outcomes(3, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200})
	})).Send(t.Context(), all)
	stop(tracer, patience)
	require.Len(t, r.Spans(), 3)
	request := r.Spans()[2]
	assert.Equal(t, "deliver mail", request.Name)
	assert.Equal(t, "3", request.Attributes["messaging.batch.message_count"])
	require.Len(t, request.Links, 2)
	assert.Equal(t, all[0].RequestTrace[3:35], request.Trace)
	assert.Empty(t, all[1].Traceparent)
	for i, s := range r.Spans()[:2] {
		assert.Equal(t, "attempt mail", s.Name)
		assert.Equal(t, all[2*i].Traceparent[3:35], s.Trace)
		require.Len(t, s.Links, 2)
		assert.Equal(t, request.ID, s.Links[1].ID)
	}
}

// Each attempt gets ids of its own, which are the same on all nodes with the secret.
func TestAttemptIDs(t *testing.T) {
	r := otlptest.Start(t, nil)
	one, _ := start(t, r, nil)
	again, _ := start(t, r, nil)
	given := func(tracer *tracing.Tracer, d []asyncflow.Delivery) string {
		tracing.NewSender(tracer, sends(func(all []asyncflow.Delivery) []asyncflow.Outcome {
			return outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		})).Send(t.Context(), d)
		return d[0].Traceparent
	}
	seq, task, tenant := deliveries(""), deliveries(""), deliveries("")
	seq[0].Lease.Seq++
	task[0].Lease.ID.Number++
	tenant[0].Tenant = "other"
	first := given(one, deliveries(""))
	assert.Equal(t, first, given(again, deliveries("")))
	seen := map[string]bool{first: true}
	for _, d := range [][]asyncflow.Delivery{seq, task, tenant} {
		own := given(one, d)
		assert.False(t, seen[own], own)
		seen[own] = true
	}
}

// A span ends even if the sender panics.
func TestPanicEndsSpan(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, nil)
	s := tracing.NewSender(tracer, sends(func([]asyncflow.Delivery) []asyncflow.Outcome {
		panic("oh")
	}))
	require.Panics(t, func() { s.Send(t.Context(), deliveries(submitTrace, submitTrace)) })
	stop(tracer, patience)
	require.Len(t, r.Spans(), 3)
	for _, s := range r.Spans() {
		assert.Equal(t, "panic", s.Attributes["error.type"])
		assert.False(t, s.End.Before(s.Start))
	}
}

// A worker gets no traceparent if contexts are not propagated, and there is none of a task that a
// worker would get.
func TestNoPropagation(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, map[string]string{"OTEL_PROPAGATORS": "none"})
	all := deliveries(submitTrace)
	tracing.NewSender(tracer, sends(func(all []asyncflow.Delivery) []asyncflow.Outcome {
		return outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	})).Send(t.Context(), all)
	assert.Empty(t, all[0].Traceparent)
	c := tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/tasks", Traceparent: submitTrace})
	tasks := make([]asyncflow.NewTask, 1)
	c.Submits(tasks)
	assert.Empty(t, tasks[0].Options.Trace)
	c.End(201, "")
	stop(tracer, patience)
	assert.NotEqual(t, submitTrace[3:35], r.Spans()[1].Trace)
}

// A report is linked to the attempt, on any node with the secret, and is recorded if the attempt
// was. Its caller's own span is its parent.
func TestReport(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_always_off"})
	all := deliveries(submitTrace)
	tracing.NewSender(tracer, sends(func(all []asyncflow.Delivery) []asyncflow.Outcome {
		return outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202})
	})).Send(t.Context(), all)

	given := []string{"", all[0].Traceparent, "00-zz", strings.Repeat("0", 999)}
	for _, traceparent := range given {
		c := tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/callbacks/{id}/complete",
			Tenant: "acme", Traceparent: traceparent})
		c.Reports(all[0].Lease.ID, all[0].Lease.Seq)
		c.Settles(&all[0].Lease, asyncflow.OutcomeDone)
		c.End(200, "")
	}
	other := deliveries("")[0].Lease
	c := tracer.Begin(tracing.Request{Method: "POST", Route: "/", Tenant: "acme"})
	c.Reports(other.ID, other.Seq)
	c.Settles(&other, asyncflow.OutcomeDone)
	c.End(200, "") // of an attempt that isn't recorded
	stop(tracer, patience)

	require.Len(t, r.Spans(), 5)
	attempt := r.Spans()[0]
	for i, s := range r.Spans()[1:] {
		assert.Equal(t, "SPAN_KIND_SERVER", s.Kind)
		require.Len(t, s.Links, 1)
		assert.Equal(t, attempt.ID, s.Links[0].ID)
		assert.Equal(t, attempt.Trace, s.Links[0].Trace)
		if i == 1 {
			assert.Equal(t, attempt.ID, s.Parent)
		} else {
			assert.Empty(t, s.Parent)
		}
	}
	assert.Equal(t, "done", r.Spans()[1].Attributes["asyncflow.outcome"])
}

// A claim that hands out nothing isn't recorded, and one that hands out a task of a trace is.
func TestClaim(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_always_off"})
	for _, all := range [][]asyncflow.Delivery{nil, deliveries(submitTrace)} {
		c := tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/claims", Tenant: "acme"})
		c.HandsOut(all)
		c.End(200, "")
	}
	stop(tracer, patience)
	require.Len(t, r.Spans(), 2)
	attempt, claim := r.Spans()[0], r.Spans()[1]
	assert.Equal(t, "POST /v1/claims", claim.Name)
	assert.Equal(t, submitTrace[3:35], claim.Links[0].Trace)
	assert.Equal(t, claim.ID, attempt.Links[1].ID)
}

// The number of links of a claim of many tasks is bounded. The attempts are linked to the claim.
func TestLinksAreBounded(t *testing.T) {
	for limit, want := range map[string]int{"": 32, "3": 3, "128": 50} {
		t.Run(limit, func(t *testing.T) {
			r := otlptest.Start(t, nil)
			tracer, _ := start(t, r, map[string]string{"OTEL_SPAN_LINK_COUNT_LIMIT": limit})
			c := tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/claims", Tenant: "acme"})
			c.HandsOut(deliveries(slices.Repeat([]string{submitTrace}, 50)...))
			c.End(200, "")
			stop(tracer, patience)
			require.Len(t, r.Spans(), 51)
			claim := r.Spans()[50]
			assert.Len(t, claim.Links, want)
			for _, s := range r.Spans()[:50] {
				require.Len(t, s.Links, 2)
				assert.Equal(t, claim.Link(), s.Links[1])
			}
		})
	}
}

// A submit gives its trace to tasks without one, if it is recorded and there is room for it in
// them.
func TestSubmit(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, nil)
	tasks := make([]asyncflow.NewTask, 3)
	tasks[1].Options.Trace = submitTrace
	tasks[2].Options.Metadata = map[string]string{}
	for _, name := range strings.Split("abcdefgh", "") {
		tasks[2].Options.Metadata[name] = strings.Repeat("x", 245)
	}
	c := tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/tasks/batch", Tenant: "acme",
		Traceparent: submitTrace, Tracestate: "vendor=1"})
	c.Submits(tasks)
	c.End(500, "Internal Server Error")
	stop(tracer, patience)
	s := r.Spans()[0]
	assert.Equal(t, submitTrace[36:52], s.Parent)
	assert.Equal(t, "vendor=1", s.State)
	assert.Equal(t, "00-"+submitTrace[3:35]+"-"+s.ID+"-01",
		tasks[0].Options.Trace)
	assert.Equal(t, submitTrace, tasks[1].Options.Trace)
	assert.Empty(t, tasks[2].Options.Trace)
	assert.True(t, s.Failed)

	one := make([]asyncflow.NewTask, 1)
	c = tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/tasks",
		Traceparent: submitTrace[:53] + "00"})
	c.Submits(one)
	assert.Empty(t, one[0].Options.Trace, "it isn't sampled")
}

// Headers that are longer than any that are needed are not read, whether or not they are right.
func TestHeadersAreBounded(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, nil)
	later := "01" + submitTrace[2:] + "-" // there may be more fields in a later version
	state := func(size int) string {
		return "a=" + strings.Repeat("x", 256) + ",b=" + strings.Repeat("y", size-261)
	}
	all := []struct {
		parent, state string
		read, kept    bool
	}{
		{later + strings.Repeat("f", 128-len(later)), "", true, false},
		{later + strings.Repeat("f", 129-len(later)), "", false, false},
		{submitTrace, state(512), true, true},
		{submitTrace, state(513), true, false},
	}
	for _, one := range all {
		tracer.Begin(tracing.Request{Method: "GET", Route: "/", Tenant: "acme",
			Traceparent: one.parent, Tracestate: one.state}).End(200, "")
	}
	stop(tracer, patience)
	require.Len(t, r.Spans(), len(all))
	for i, s := range r.Spans() {
		assert.Equal(t, all[i].read, s.Parent == submitTrace[36:52], i)
		assert.Equal(t, all[i].kept, s.State != "", i)
	}
}

// Callers that mark every trace as sampled, or choose the ids of traces, cause a bounded number of
// spans.
func TestCallersCauseFewSpans(t *testing.T) {
	for _, sampler := range []string{"parentbased_traceidratio", "traceidratio"} {
		t.Run(sampler, func(t *testing.T) {
			r := otlptest.Start(t, nil)
			tracer, _ := start(t, r, map[string]string{"OTEL_TRACES_SAMPLER": sampler,
				"OTEL_TRACES_SAMPLER_ARG": "0.0000001", "OTEL_BSP_MAX_QUEUE_SIZE": "50000"})
			const chosen = "00-4bf92f3577b34da60000000000000001-00f067aa0ba902b7-01"
			begun := time.Now()
			for range 20_000 {
				tracer.Begin(tracing.Request{Tenant: "acme", Traceparent: chosen}).End(200, "")
			}
			most := float64(tracing.DefaultPerTenant) * (2 + time.Since(begun).Seconds())
			tracer.Begin(tracing.Request{Tenant: "other", Traceparent: chosen}).End(200, "")
			stop(tracer, patience)
			n := len(r.Spans())
			assert.LessOrEqual(t, float64(n), most)
			assert.GreaterOrEqual(t, n, tracing.DefaultPerTenant+1)
			assert.Equal(t, "other", r.Spans()[n-1].Attributes["asyncflow.tenant"])
			exported, _, _, over := tracer.Counts()
			assert.EqualValues(t, 20_001, exported+over)
		})
	}
}

// Attempts and reports of a recorded submit count, too, each once, whoever decided about the
// submit. The claims without a header are no caller's choice.
func TestSpansOverLimit(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "50000"})
	s := tracing.NewSender(tracer, sends(func([]asyncflow.Delivery) []asyncflow.Outcome {
		return outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202})
	}))
	task := make([]asyncflow.NewTask, 1)
	c := tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/tasks", Tenant: "acme"})
	c.Submits(task)
	c.End(201, "")
	const rounds = 5000
	for range rounds {
		all := deliveries(task[0].Options.Trace)
		s.Send(t.Context(), all)
		c := tracer.Begin(tracing.Request{Method: "POST", Route: "/", Tenant: "acme",
			Traceparent: task[0].Options.Trace})
		c.Reports(all[0].Lease.ID, all[0].Lease.Seq)
		c.Settles(&all[0].Lease, asyncflow.OutcomeDone)
		c.End(200, "")
		all = deliveries(task[0].Options.Trace)
		c = tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/claims", Tenant: "acme"})
		c.HandsOut(all)
		c.End(200, "")
	}
	stop(tracer, patience)
	exported, _, _, over := tracer.Counts()
	assert.NotZero(t, over)
	assert.EqualValues(t, 1+4*rounds, exported+over)
}

// A ratio decides about calls that their callers didn't decide about, and about attempts without a
// submit. A small one shows whether any bit of an id that it looks at is always the same.
func TestRatio(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG": "0.003", "OTEL_BSP_MAX_QUEUE_SIZE": "50000"})
	s := tracing.NewSender(tracer, sends(func(all []asyncflow.Delivery) []asyncflow.Outcome {
		return outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	}))
	for i := range 200_000 {
		tracer.Begin(tracing.Request{Method: "GET", Route: "/", Tenant: "acme"}).End(200, "")
		d := deliveries("")
		d[0].Lease.Seq = i
		s.Send(t.Context(), d)
	}
	stop(tracer, patience)
	n := map[string]int{}
	for _, s := range r.Spans() {
		n[s.Name]++
	}
	// 600 are expected, with a standard deviation of 24.
	assert.InDelta(t, 600, n["GET /"], 150)
	assert.InDelta(t, 600, n["deliver mail"], 150)
}
