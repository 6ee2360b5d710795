package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

// consoleSpan is a span as the exporter console writes it.
type consoleSpan struct {
	Name                string
	SpanContext, Parent spanIDs
	Links               []struct{ SpanContext spanIDs }
	Attributes          []struct {
		Key   string
		Value struct{ Value any }
	}
}

type spanIDs struct{ TraceID, SpanID string }

func (s consoleSpan) attribute(key string) any {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.Value
		}
	}
	return nil
}

// setupTraced is setup with traces. spans ends the server and returns what it recorded.
func setupTraced(t *testing.T) (b *bundle, spans func() map[string][]consoleSpan) {
	t.Helper()
	var out bytes.Buffer
	env := func(name string) (string, bool) {
		if name == "OTEL_TRACES_EXPORTER" {
			return "console", true
		}
		return "", false
	}
	tracer, err := tracing.Start(t.Context(), tracing.Config{Env: env, Console: &out,
		Secret: []byte("secret"), PerTenant: tracing.DefaultPerTenant,
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	b = setupWith(t, func(cfg *httpapi.Config) { cfg.Tracer = tracer })
	return b, func() map[string][]consoleSpan {
		b.stop()
		tracer.Stop(t.Context())
		all := map[string][]consoleSpan{}
		for d := json.NewDecoder(&out); ; {
			var s consoleSpan
			if err := d.Decode(&s); err == io.EOF {
				return all
			} else {
				require.NoError(t, err)
			}
			all[s.Name] = append(all[s.Name], s)
		}
	}
}

const callerTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A claim hands out the trace of each attempt. The claim is linked to the submits, the attempt to
// both, and the report to the attempt.
func TestTracedClaim(t *testing.T) {
	b, spans := setupTraced(t)
	b.claimed()
	ids := b.submitJudge(2)
	claims := b.claim("ada", `,"max":2`)
	require.Len(t, claims, 2)
	for _, d := range claims {
		require.Equal(t, 200, b.report(d, "complete", `{}`).status)
	}
	b.claim("ada", "") // gets nothing
	all := spans()
	submits := all["POST /v1/tasks"]
	require.Len(t, submits, 2)
	require.Len(t, all["POST /v1/claims"], 1)
	claim := all["POST /v1/claims"][0]
	reports := all["POST /v1/callbacks/{id}/complete"]
	for i, d := range claims {
		attempt := all["attempt judge"][i]
		assert.Equal(t, ids[i], attempt.attribute("messaging.message.id"))
		assert.Equal(t, submits[i].SpanContext, claim.Links[i].SpanContext)
		assert.Equal(t, submits[i].SpanContext, attempt.Links[0].SpanContext)
		assert.Equal(t, claim.SpanContext, attempt.Links[1].SpanContext)
		own := attempt.SpanContext
		assert.Equal(t, "00-"+own.TraceID+"-"+own.SpanID+"-01", d.Traceparent)
		assert.Equal(t, own, reports[i].Links[0].SpanContext)
		assert.Equal(t, "done", reports[i].attribute("asyncflow.outcome"))
	}
}

// All tasks of a batch get the trace of the call, but for those with a trace of their own.
func TestTracedBatch(t *testing.T) {
	b, spans := setupTraced(t)
	b.claimed()
	a := read[api.SubmittedBatch](b, 201, b.call("POST", "/v1/tasks/batch", `{"tasks":[
		{"type":"judge","context":1}, {"type":"judge","context":2,"trace":"`+callerTrace+`"}]}`))
	first, second := b.task(a.Tasks[0].Task.ID), b.task(a.Tasks[1].Task.ID)
	s := spans()["POST /v1/tasks/batch"][0]
	own := s.SpanContext
	assert.Equal(t, "00-"+own.TraceID+"-"+own.SpanID+"-01", first.Trace)
	assert.Equal(t, callerTrace, second.Trace)
	assert.EqualValues(t, 2, s.attribute("messaging.batch.message_count"))
}

// A stranger's call is no span. A header that can't be read is ignored, whatever it is.
func TestTracedStrangers(t *testing.T) {
	b, spans := setupTraced(t)
	b.claimed()
	require.Equal(t, 401, b.callAs("", "GET", "/v1/tasks", "").status)
	require.Equal(t, 401, b.callAs("x", "POST", "/v1/tasks", "{}").status)
	require.Equal(t, 200, b.callAs("", "GET", "/healthz", "").status)
	bad := []string{"", "00", callerTrace + "-x", "ff" + callerTrace[2:],
		strings.ToUpper(callerTrace), "00-" + strings.Repeat("0", 32) + callerTrace[35:],
		strings.Repeat(callerTrace, 50), "\xff\x00;--", callerTrace}
	for i, trace := range bad {
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/v1/tasks",
			strings.NewReader(`{"type":"judge","context":1}`))
		require.NoError(t, err)
		req.Header = http.Header{"Authorization": {"Bearer " + b.token},
			"Content-Type": {"application/json"},
			"Traceparent":  {strings.ReplaceAll(trace, "\x00", "")},
			"Tracestate":   {strings.Repeat("a=1,", i*100)}}
		require.Equal(t, 201, b.do(req).status, trace)
	}
	require.Equal(t, 404, b.call("GET", "/v1/tasks/judge.1.999", "").status)
	all := spans()
	require.Len(t, all["POST /v1/tasks"], len(bad))
	for i, s := range all["POST /v1/tasks"] {
		isCallers := i == len(bad)-1
		assert.Equal(t, isCallers, s.SpanContext.TraceID == callerTrace[3:35], bad[i])
		assert.Equal(t, isCallers, s.Parent.SpanID == callerTrace[36:52], bad[i])
	}
	assert.Empty(t, all["GET /healthz"])
	assert.EqualValues(t, 404, all["GET /v1/tasks/{id}"][0].attribute("http.response.status_code"))
}

// A task that a schedule's call starts is in the trace of the call.
func TestTracedStarts(t *testing.T) {
	b, spans := setupTraced(t)
	b.claimed()
	a := b.call("PUT", "/v1/schedules/nightly",
		`{"cron":"0 3 * * *","type":"judge","context":{}}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	started := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/schedules/nightly/trigger", ""))
	trace := b.task(started.ID).Trace
	own := spans()["POST /v1/schedules/{name}/trigger"][0].SpanContext
	assert.Equal(t, "00-"+own.TraceID+"-"+own.SpanID+"-01", trace)
}
