package httpapi_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/worker"
)

// overTLS starts a worker with a certificate of its own, and registers it as an endpoint.
func (b *bundle) overTLS(h http.Handler) api.Endpoint {
	b.t.Helper()
	server := httptest.NewTLSServer(h)
	b.t.Cleanup(server.Close)
	ca, err := json.Marshal(string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	require.NoError(b.t, err)
	return b.createEndpoint(`"url":%q,"secret":%q,"allow_duplicate":true,"tls":{"ca":%s},
		"headers":{"X-Key":"swordfish"}`, server.URL, ownSecret, ca)
}

// test sends a test delivery, as soon as the rate of its tenant allows it.
func (b *bundle) test(id, body string) answer {
	b.t.Helper()
	var a answer
	require.Eventually(b.t, func() bool {
		a = b.call("POST", "/v1/endpoints/"+id+"/test", body)
		return a.status != 429 || a.problem.Code != "rate_limited" ||
			a.header.Get("Retry-After") != "1"
	}, patience, 100*time.Millisecond)
	require.NotEqual(b.t, 429, a.status)
	return a
}

// A worker gets a test delivery over HTTPS, verifies it, and can tell it from a task. The answer
// says what it sent and what came back; nothing is changed but the audit.
func TestTestDelivery(t *testing.T) {
	b := challenging(t)
	seen := make(chan worker.Task[json.RawMessage], 1)
	w, err := worker.New(worker.Config{Keys: []string{ownSecret},
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	worker.Handle(w, "pipe", "first",
		func(_ context.Context, task worker.Task[json.RawMessage]) (string, error) {
			seen <- task
			if strings.Contains(string(task.Context), "bad") {
				return "", worker.Fail(errors.New("no such image"))
			}
			return "looked at it", nil
		})
	e := b.overTLS(w)
	require.Equal(t, api.Verified, e.Verification, e.VerificationError)
	before := b.call("GET", "/v1/endpoints/"+e.ID, "").body

	got := read[api.EndpointTestResult](b, 200, b.test(e.ID, `{"context":{"n":1.10}}`))
	task := <-seen
	assert.Equal(t, []any{true, "pipe", "first", 1, 2, `{"n":1.10}`},
		[]any{task.Test, task.Type, task.Stage, task.Attempt, task.MaxAttempts,
			string(task.Context)})
	assert.Equal(t, api.EndpointTestResultOutcome("done"), got.Outcome, got.Error)
	assert.Positive(t, got.DurationMs)
	assert.Equal(t, []any{"POST", e.URL, "true", asyncflow.Mask, task.ID + ".1"},
		[]any{got.Request.Method, got.Request.URL, got.Request.Headers["Asyncflow-Test"],
			got.Request.Headers["X-Key"], got.Request.Headers["Webhook-Id"]})
	assert.NotEmpty(t, got.Request.Headers["Webhook-Signature"])
	assert.Contains(t, got.Request.Body, `"context":{"n":1.10}`)
	assert.Equal(t, 200, got.Response.Status)
	assert.Equal(t, "application/json", got.Response.Headers["Content-Type"])
	assert.JSONEq(t, `{"output":"looked at it"}`, got.Response.Body)

	got = read[api.EndpointTestResult](b, 200, b.test(e.ID, `{"context":"bad"}`))
	<-seen
	assert.Equal(t, []string{"rejected", "no such image"}, []string{string(got.Outcome), got.Error})
	read[api.EndpointTestResult](b, 200, b.test(e.ID, ""))
	assert.JSONEq(t, `{}`, string((<-seen).Context))

	// Nothing can be reported on a test delivery.
	for path, body := range map[string]string{"complete": "", "fail": `{"error":"x"}`,
		"heartbeat": "",
		"progress":  `{"percent":1}`} {
		a := b.callAs(task.Callback.Token, "POST", "/v1/callbacks/"+task.ID+"/"+path, body)
		assert.Equal(t, 404, a.status, "%s: %s", path, a.body)
		assert.Contains(t, a.problem.Detail, "this was a test delivery")
	}
	assert.JSONEq(t, string(before), string(b.call("GET", "/v1/endpoints/"+e.ID, "").body))
	assert.Empty(t, read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", "")).Data)
}

// The outcome is that of a real delivery with the same answer, and none counts for the endpoint's
// health.
func TestOutcomesOfTestDeliveries(t *testing.T) {
	b := challenging(t)
	require.Equal(t, 200, b.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"first","timeout":"300ms"}]}`).status)
	answers := map[string]http.HandlerFunc{
		"busy": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			http.Error(w, "busy", http.StatusServiceUnavailable)
		},
		"gone":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) },
		"later": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) },
		"html": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "<p>%s", strings.Repeat(r.Header.Get("X-Key")+"é", 4000))
		},
		"wait": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"outcome":"snooze","retry_after":"5m","error":"no label yet"}`)
		},
		"silent": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // else an empty answer could still get through
		},
	}
	var name string
	verifier, err := signing.NewVerifier(ownSecret)
	require.NoError(t, err)
	e := b.overTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		r.Body.Read(body)
		if _, err := verifier.Verify(r.Header, body, time.Now()); err != nil {
			w.WriteHeader(401)
			return
		}
		var c struct{ Challenge string }
		if json.Unmarshal(body, &c) == nil && c.Challenge != "" {
			json.NewEncoder(w).Encode(c)
			return
		}
		answers[name](w, r)
	}))
	before := b.call("GET", "/v1/endpoints/"+e.ID, "").body
	for _, c := range []struct {
		name, outcome, why string
		status             int
		retryAfter         time.Duration
	}{
		{"busy", "failed", "503 Service Unavailable: busy", 503, 30 * time.Second},
		{"gone", "failed", "410 Gone", 410, 0},
		{"later", "accepted", "", 202, 0},
		{"html", "failed", "the answer has a body of type", 200, 0},
		{"wait", "snoozed", "no label yet", 200, 5 * time.Minute},
		{"silent", "failed", "no answer within 300ms", 0, 0},
	} {
		name = c.name
		a := b.test(e.ID, "")
		got := read[api.EndpointTestResult](b, 200, a)
		assert.Equal(t, []any{c.outcome, c.status, c.retryAfter},
			[]any{string(got.Outcome), got.Response.Status, got.RetryAfter.Std()}, c.name)
		assert.True(t, got.Outcome.Valid(), c.name)
		assert.Contains(t, got.Error, c.why)
		assert.NotContains(t, string(a.body), "swordfish")
		if c.name == "html" {
			assert.True(t, got.Response.Truncated)
			assert.True(t, strings.HasPrefix(got.Response.Body, "<p>********é********é"))
			assert.LessOrEqual(t, len(got.Response.Body), 16<<10+len("…"))
		}
		if c.name == "silent" {
			assert.NotContains(t, string(a.body), `"response"`)
			assert.NotEmpty(t, got.Request.Body)
		}
	}
	assert.JSONEq(t, string(before), string(b.call("GET", "/v1/endpoints/"+e.ID, "").body))
}

// Only an endpoint that may get deliveries is tested.
func TestRefusedTestDeliveries(t *testing.T) {
	b := challenging(t)
	w := newEchoing(t, signing.NewSecret())
	e := b.createEndpoint(`"url":%q`, w.URL)
	path := "/v1/endpoints/" + e.ID + "/test"
	n := len(w.requests())
	a := b.call("POST", path, "")
	require.Equal(t, 409, a.status, "%s", a.body)
	assert.Contains(t, a.problem.Detail, "/v1/endpoints/"+e.ID+"/verify")
	assert.Len(t, w.requests(), n, "it was sent nothing")
	listens := read[api.Endpoint](b, 201,
		b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"second","listen":true}`))
	a = b.call("POST", "/v1/endpoints/"+listens.ID+"/test", "")
	require.Equal(t, 409, a.status, "%s", a.body)
	assert.Contains(t, a.problem.Detail, "for listening")

	for _, id := range []string{"x", "0190a6f0-0000-7000-8000-000000000009"} {
		assert.Equal(t, 404, b.call("POST", "/v1/endpoints/"+id+"/test", "").status)
	}
	_, err := b.store.CreateTenant(t.Context(), "other", asyncflow.Quotas{})
	require.NoError(t, err)
	other := b.newToken("other", auth.ScopeManage)
	assert.Equal(t, 404, b.callAs(other, "POST", path, "").status)
	reader := b.newToken("acme", auth.ScopeRead, auth.ScopeSubmit, auth.ScopeOperate)
	assert.Equal(t, 403, b.callAs(reader, "POST", path, "").status)
	assert.Equal(t, 401, b.callAs("", "POST", path, "").status)
	a = b.call("POST", path, `{"contxt":1}`)
	require.Equal(t, 400, a.status)
	assert.Equal(t, "contxt", a.problem.Errors[0].Field)
	a = b.call("POST", path, `{"context":"`+strings.Repeat("x", maxContext)+`"}`)
	require.Equal(t, 413, a.status)
	assert.Equal(t, "context", a.problem.Errors[0].Field)
	assert.Equal(t, 200, b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme",
		`{"quotas":{"context_bytes":10}}`).status)
	require.Eventually(t, func() bool {
		a = b.call("POST", path, `{"context":"0123456789"}`)
		return a.status == 403
	}, patience, 10*time.Millisecond)
	assert.Equal(t, "quota_exceeded", a.problem.Code)
}

// A tenant can't keep a node busy with test deliveries, nor a worker: not by many at once.
func TestTestDeliveriesAreBounded(t *testing.T) {
	b := challenging(t)
	over := make(chan struct{})
	begun := make(chan struct{}, 10)
	w := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-over
	}))
	t.Cleanup(w.Close)
	e := b.createEndpoint(`"url":%q`, "http://127.0.0.1:1/")
	_, err := b.store.ChangeEndpoint(t.Context(), "acme", e.ID, func(e *asyncflow.Endpoint) error {
		e.URL, e.Challenged = w.URL, false
		return nil
	})
	require.NoError(t, err)
	done := make(chan answer)
	for range 4 {
		go func() { done <- b.test(e.ID, "") }()
	}
	for range 4 {
		<-begun
	}
	a := b.call("POST", "/v1/endpoints/"+e.ID+"/test", "")
	require.Equal(t, 429, a.status, "%s", a.body)
	assert.Contains(t, a.problem.Detail, "is 4 test deliveries at once")
	close(over)
	for range 4 {
		assert.Equal(t, 200, (<-done).status)
	}
	limited := 0
	for range 10 {
		a := b.call("POST", "/v1/endpoints/"+e.ID+"/test", "")
		if a.status == 429 {
			limited++
			assert.Contains(t, a.problem.Detail, "1 test delivery per second")
		}
	}
	assert.Positive(t, limited)
}

// An endpoint that is disabled can be tried before it is enabled, and stays disabled.
func TestTestDeliveryOfADisabledEndpoint(t *testing.T) {
	b := challenging(t)
	w := newEchoing(t, ownSecret)
	e := b.createEndpoint(`"url":%q,"secret":%q`, w.URL, ownSecret)
	now := b.store.Clock.Now()
	ok, err := b.store.SetHealth(t.Context(), "acme", e.ID, asyncflow.Health{},
		asyncflow.Health{State: asyncflow.HealthDisabled, Since: now, Reason: "410 Gone"})
	require.NoError(t, err)
	require.True(t, ok)
	got := read[api.EndpointTestResult](b, 200, b.test(e.ID, ""))
	assert.Equal(t, api.EndpointTestResultOutcome("done"), got.Outcome, got.Error)
	assert.Equal(t, asyncflow.HealthDisabled,
		read[api.Endpoint](b, 200, b.call("GET", "/v1/endpoints/"+e.ID, "")).Health.State)
}

// A test delivery doesn't keep a node from stopping: its caller learns so, in an answer.
func TestTestDeliveryAtShutdown(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.Egress = asyncflow.Anywhere
		c.Sender = callbacks.NewSender(callbacks.Config{Egress: asyncflow.Anywhere}, c.Keys)
	})
	b.pipe()
	called := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else it doesn't learn that the caller is gone
		close(called)
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	e := b.createEndpoint(`"url":%q`, slow.URL)
	answered := make(chan answer, 1)
	go func() { answered <- b.test(e.ID, "") }()
	<-called
	b.stop()
	got := read[api.EndpointTestResult](b, 200, <-answered)
	assert.Equal(t, "the node stopped before the answer came", got.Error)
}
