package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/otlptest"
)

// callerTrace is the traceparent of a caller that records its trace.
const callerTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// startTraced starts a node that exports its spans to a receiver.
func startTraced(
	t *testing.T, r *otlptest.Receiver, database string, more ...string,
) *process {
	t.Helper()
	env := append(nodeEnv(database), "OTEL_TRACES_EXPORTER=otlp",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+r.URL, "OTEL_BSP_SCHEDULE_DELAY=20",
		"ASYNCFLOW_LOG_FORMAT=json", "ASYNCFLOW_METRICS=open")
	p := start(t, append(env, more...), "serve")
	require.NotEmpty(t, p.url, p.said())
	return p
}

// submitTraced submits a task as a part of a caller's trace.
func submitTraced(t *testing.T, p *process, body string) (id string) {
	t.Helper()
	req, err := http.NewRequest("POST", p.url+"/v1/tasks", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+testToken(t))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", callerTrace)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	var task struct{ ID string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&task))
	return task.ID
}

// ofTask returns the spans of a task with a name.
func ofTask(all []otlptest.Span, id, name string) (some []otlptest.Span) {
	for _, s := range all {
		if s.Name == name && s.Attributes["messaging.message.id"] == id {
			some = append(some, s)
		}
	}
	return some
}

// tracedWorker keeps the headers traceparent of its deliveries.
type tracedWorker struct {
	*worker
	mu      sync.Mutex
	headers map[string][]string // by the task
}

func startTracedWorker(
	t *testing.T, handle func(http.ResponseWriter, *http.Request, delivery),
) *tracedWorker {
	w := &tracedWorker{headers: map[string][]string{}}
	w.worker = startWorker(t, func(rw http.ResponseWriter, r *http.Request, d delivery) {
		w.mu.Lock()
		w.headers[d.ID] = append(w.headers[d.ID], strings.Join(r.Header["Traceparent"], ","))
		w.mu.Unlock()
		handle(rw, r, d)
	})
	return w
}

// given returns the headers traceparent of the deliveries of a task.
func (w *tracedWorker) given(id string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.headers[id]
}

const (
	submitSpan   = "POST /v1/tasks"
	completeSpan = "POST /v1/callbacks/{id}/complete"
)

// A task can be followed from its caller over the submit and the delivery to the report, from node
// to node. A delivery is in the worker's hands with the trace of the attempt.
func TestTraces(t *testing.T) {
	t.Parallel()
	r := otlptest.Start(t, nil)
	url := database(t)
	p := startTraced(t, r, url)
	other := startTraced(t, r, url, "ASYNCFLOW_ROLES=api")
	reports := make(chan delivery, 1)
	w := startTracedWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		rw.WriteHeader(http.StatusAccepted)
		reports <- d
	})
	w.pipe(t, p.client(), oneStage())
	id := submitTraced(t, p, `{"type":"pipe","context":{"secret":"context-secret"}}`)
	d := <-reports
	d.Callback.URL = other.url + d.Callback.URL[strings.Index(d.Callback.URL, "/v1/"):]
	complete(t, d)
	all := r.Await(func(all []otlptest.Span) bool {
		return len(ofTask(all, id, submitSpan)) > 0 && len(ofTask(all, id, "deliver pipe")) > 0 &&
			len(ofTask(all, id, completeSpan)) > 0
	})
	submit := ofTask(all, id, submitSpan)[0]
	deliver := ofTask(all, id, "deliver pipe")[0]
	report := ofTask(all, id, completeSpan)[0]
	assert.Equal(t, callerTrace[3:35], submit.Trace)
	assert.Equal(t, callerTrace[36:52], submit.Parent)
	assert.Equal(t, "SPAN_KIND_SERVER", submit.Kind)
	assert.Equal(t, []otlptest.Link{submit.Link()}, deliver.Links)
	assert.Empty(t, deliver.Parent)
	assert.NotEqual(t, submit.Trace, deliver.Trace)
	assert.Equal(t, "accepted", deliver.Attributes["asyncflow.outcome"])
	assert.Equal(t, "202", deliver.Attributes["http.response.status_code"])
	assert.Equal(t, []otlptest.Link{deliver.Link()}, report.Links)
	assert.Equal(t, "done", report.Attributes["asyncflow.outcome"])
	assert.Equal(t, []string{"00-" + deliver.Trace + "-" + deliver.ID + "-01"}, w.given(id))

	task, err := p.client().Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, "00-"+submit.Trace+"-"+submit.ID+"-01", task.Trace)
	for _, s := range all {
		assert.NotContains(t, fmt.Sprint(s), "context-secret")
	}
	for _, said := range []string{`"trace_id":"` + submit.Trace,
		`"attempt_trace_id":"` + deliver.Trace} {
		require.Eventually(t, func() bool { return strings.Contains(p.said(), said) }, patience,
			10*time.Millisecond, said)
	}
	_, metrics := p.send("GET", "/metrics", "")
	assert.Contains(t, metrics, "asyncflow_spans_exported_total")
	assert.Contains(t, metrics, "asyncflow_spans_dropped_total 0")
	assert.Contains(t, metrics, "asyncflow_spans_over_limit_total 0")
}

// Whatever ends an attempt early, its span ends: a worker that breaks off or is silent, and a node
// that stops. Of a node that is killed there is no span, and the next attempt gets its own.
func TestSpansEnd(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	r := otlptest.Start(t, nil)
	url := database(t)
	p := startTraced(t, r, url, "ASYNCFLOW_GRACE=100ms")
	open := make(chan string, 10)
	w := startTracedWorker(t, func(_ http.ResponseWriter, q *http.Request, d delivery) {
		switch {
		case string(d.Context) == `"break"` && d.Attempt == 1:
			panic(http.ErrAbortHandler)
		case string(d.Context) == `"hang"` && d.Seq == 1, string(d.Context) == `"last"`:
			open <- d.ID
			<-q.Context().Done()
		}
	})
	w.pipe(t, p.client(), client.TaskTypeSpec{Stages: []client.Stage{{Name: "work",
		Timeout: asyncflow.NewDuration(2 * time.Second), Retry: asyncflow.RetryPolicy{
			MaxAttempts: 5, Interval: asyncflow.Seconds(-0.1)}}}})
	broken := submitTraced(t, p, `{"type":"pipe","context":"break"}`)
	silent := submitTraced(t, p, `{"type":"pipe","context":"hang"}`)
	all := r.Await(func(all []otlptest.Span) bool {
		return len(ofTask(all, broken, "deliver pipe")) == 2 &&
			len(ofTask(all, silent, "deliver pipe")) == 2
	})
	<-open
	for id, why := range map[string]string{broken: "connection_lost", silent: "timeout"} {
		both := ofTask(all, id, "deliver pipe")
		submit := ofTask(r.Spans(), id, submitSpan)[0]
		assert.True(t, both[0].Failed)
		assert.Equal(t, why, both[0].Attributes["error.type"])
		assert.False(t, both[1].Failed)
		assert.NotEqual(t, both[0].Trace, both[1].Trace)
		for _, s := range both {
			assert.Equal(t, []otlptest.Link{submit.Link()}, s.Links)
		}
	}

	last := submitTraced(t, p, `{"type":"pipe","context":"last"}`)
	<-open
	b := startTraced(t, r, url)
	p.signal(syscall.SIGTERM) // cuts the attempt off after the grace
	p.wait()
	cut := ofTask(r.Spans(), last, "deliver pipe")
	require.NotEmpty(t, cut, "the node has exported it before it ended")
	assert.False(t, cut[0].End.Before(cut[0].Start))
	<-open // on the other node
	before := len(ofTask(r.Spans(), last, "deliver pipe"))
	b.kill()
	assert.Len(t, ofTask(r.Spans(), last, "deliver pipe"), before)
	c := startTraced(t, r, url)
	_, err := c.client().Cancel(t.Context(), last, "")
	require.NoError(t, err)
	for _, s := range r.Spans() {
		assert.False(t, s.End.Before(s.Start), s.Name)
	}
}

// A node is killed in an attempt, which another node then gives up. The worker reports all the
// same, late: the report is linked to the attempt, although there is no span of that, and the
// worker's own spans are in its trace.
func TestTraceOfALateReport(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	r := otlptest.Start(t, nil)
	url := database(t)
	p := startTraced(t, r, url)
	open := make(chan delivery, 1)
	w := startTracedWorker(t, func(_ http.ResponseWriter, q *http.Request, d delivery) {
		open <- d
		<-q.Context().Done()
	})
	w.pipe(t, p.client(), client.TaskTypeSpec{Stages: []client.Stage{{Name: "work",
		Timeout: asyncflow.NewDuration(time.Second),
		Retry:   asyncflow.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Seconds(3600)}}}})
	id := submitTraced(t, p, `{"type":"pipe","context":1}`)
	d := <-open
	r.Await(func(all []otlptest.Span) bool { return len(ofTask(all, id, submitSpan)) > 0 })
	p.kill()
	other := startTraced(t, r, url)
	require.Eventually(t, func() bool {
		attempts, err := other.client().Attempts(t.Context(), id)
		return err == nil && len(attempts) > 0 &&
			string(attempts[0].Outcome) == string(asyncflow.OutcomeLost)
	}, patience, 20*time.Millisecond, "another node gives the attempt up")
	d.Callback.URL = other.url + d.Callback.URL[strings.Index(d.Callback.URL, "/v1/"):]
	complete(t, d)
	all := r.Await(func(all []otlptest.Span) bool { return len(ofTask(all, id, completeSpan)) > 0 })
	report := ofTask(all, id, completeSpan)[0]
	require.Len(t, w.given(id), 1)
	require.Len(t, report.Links, 1)
	link := report.Links[0]
	assert.Equal(t, "00-"+link.Trace+"-"+link.ID+"-01", w.given(id)[0])
	assert.Empty(t, ofTask(all, id, "deliver pipe"), "the node was killed in it")
	task, err := other.client().Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, client.StatusSucceeded, task.Status)
	submit := ofTask(all, id, submitSpan)[0]
	assert.Equal(t, "00-"+submit.Trace+"-"+submit.ID+"-01", task.Trace)
}

// Without an exporter, a header traceparent is not taken in, and a task's own trace is given on as
// it is.
func TestTracesAreOff(t *testing.T) {
	t.Parallel()
	p := startNode(t, database(t))
	w := startTracedWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, p.client(), oneStage())
	plain := submitTraced(t, p, `{"type":"pipe","context":1}`)
	own := strings.Replace(callerTrace, "4bf9", "5555", 1)
	labelled := submitTraced(t, p, `{"type":"pipe","context":1,"trace":"`+own+`"}`)
	awaitAll(t, p.client(), []string{plain, labelled})
	assert.Equal(t, []string{""}, w.given(plain))
	assert.Equal(t, []string{own}, w.given(labelled))
	assert.NotContains(t, p.said(), "trace_id="+callerTrace[3:35])
	_, metrics := p.send("GET", "/metrics", "")
	assert.NotContains(t, metrics, "asyncflow_spans")
}

// With OTEL_PROPAGATORS=none, spans are recorded, and a worker gets no header but a task's own
// trace.
func TestTracesAreNotPropagated(t *testing.T) {
	t.Parallel()
	r := otlptest.Start(t, nil)
	p := startTraced(t, r, database(t), "OTEL_PROPAGATORS=none")
	w := startTracedWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, p.client(), oneStage())
	plain := submitTraced(t, p, `{"type":"pipe","context":1}`)
	own := strings.Replace(callerTrace, "4bf9", "5555", 1)
	labelled := submitTraced(t, p, `{"type":"pipe","context":1,"trace":"`+own+`"}`)
	awaitAll(t, p.client(), []string{plain, labelled})
	assert.Equal(t, []string{""}, w.given(plain))
	assert.Equal(t, []string{own}, w.given(labelled))
	all := r.Await(func(all []otlptest.Span) bool {
		return len(ofTask(all, plain, submitSpan)) > 0 &&
			len(ofTask(all, plain, "deliver pipe")) > 0
	})
	assert.NotEqual(t, callerTrace[3:35], ofTask(all, plain, submitSpan)[0].Trace)
	assert.Empty(t, ofTask(all, plain, "deliver pipe")[0].Links)
}

// A node doesn't start with a variable that it can't follow.
func TestBadTraceVariables(t *testing.T) {
	t.Parallel()
	for variable, said := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin":           "must be otlp, console or none",
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/json": "must be http/protobuf or grpc",
		"ASYNCFLOW_TRACE_LIMIT=-1":              "--trace-limit",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			env := append(nodeEnv("postgres://127.0.0.1:1/x"), "OTEL_TRACES_EXPORTER=otlp",
				variable)
			p := start(t, env, "serve")
			require.Equal(t, exitUsage, p.wait())
			assert.Contains(t, p.said(), said)
		})
	}
}

// The node goes on, and says so once, while the receiver of its spans is down.
func TestTracesWithoutReceiver(t *testing.T) {
	t.Parallel()
	r := otlptest.Start(t, func() int { return http.StatusForbidden })
	p := startTraced(t, r, database(t))
	w := startTracedWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, p.client(), oneStage())
	awaitAll(t, p.client(), submitMany(t, p.client(), 100))
	require.Eventually(t, func() bool { return strings.Contains(p.said(), "can't export spans") },
		patience, 10*time.Millisecond)
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.wait())
	assert.Less(t, bytes.Count([]byte(p.said()), []byte("can't export spans")), 4)
}
