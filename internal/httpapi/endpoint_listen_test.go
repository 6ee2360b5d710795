package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

const listening = `"listen":true`

// An endpoint for listening makes its stage claimed, until it gets no deliveries any more.
func TestEndpointsForListening(t *testing.T) {
	b := challenging(t)
	e := b.createEndpoint(listening)
	assert.Equal(t, []any{true, "", api.Unneeded, asyncflow.HealthClosed},
		[]any{e.Listen, e.URL, e.Verification, e.Health.State})
	assert.True(t, strings.HasPrefix(e.Secret, "whsec_"), e.Secret)
	id, _ := b.submitOne()
	assert.Equal(t, api.TaskWaitsForClaimer, b.task(id).WaitsFor)
	verified := read[api.Endpoint](b, 200, b.call("POST", "/v1/endpoints/"+e.ID+"/verify", ""))
	assert.Equal(t, api.Unneeded, verified.Verification)
	rotated := read[api.Endpoint](b, 200,
		b.call("POST", "/v1/endpoints/"+e.ID+"/rotate-secret", ""))
	assert.NotEqual(t, e.Secret, rotated.Secret)

	b.patchEndpoint(e.ID, `{"weight":0}`)
	assert.Equal(t, "endpoint", string(b.task(id).WaitsFor), "as if there were none")
	b.patchEndpoint(e.ID, `{"weight":1}`)
	assert.Equal(t, api.TaskWaitsForClaimer, b.task(id).WaitsFor)
	require.Equal(t, 204, b.call("DELETE", "/v1/endpoints/"+e.ID, "").status)
	assert.Equal(t, "endpoint", string(b.task(id).WaitsFor))
	list := read[api.EndpointList](b, 200, b.call("GET", "/v1/endpoints", ""))
	assert.Empty(t, list.Data)
}

// A stage uses an endpoint for listening, or others, but not both.
func TestAnEndpointForListeningStandsAlone(t *testing.T) {
	b := setup(t)
	b.pipe()
	create := func(more string) answer {
		return b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first",`+more+`}`)
	}
	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	a := create(listening)
	require.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, e.ID)
	assert.Contains(t, a.problem.Detail, "https://w.example.com/x")
	b.patchEndpoint(e.ID, `{"weight":0}`)
	l := b.createEndpoint(listening)
	for name, a := range map[string]answer{
		"another one":               create(`"url":"https://w.example.com/y"`),
		"another for listening":     create(listening),
		"the one before, by weight": b.call("PATCH", "/v1/endpoints/"+e.ID, `{"weight":1}`),
	} {
		assert.Equal(t, 409, a.status, name)
		assert.Contains(t, a.problem.Detail, l.ID, name)
	}
	b.createEndpoint(`"url":"https://w.example.com/y","weight":0`)
	b.createEndpoint(listening + `,"weight":0`)
}

// What says how to send makes no sense for an endpoint for listening.
func TestEndpointsForListeningAreNotSentTo(t *testing.T) {
	b := setup(t)
	b.pipe()
	l := b.createEndpoint(listening)
	for field, more := range map[string]string{
		"url":           `"url":"https://w.example.com/x"`,
		"max_in_flight": `"max_in_flight":2`,
		"rate":          `"rate":"1/s"`,
		"batch":         `"batch":{"max_tasks":2}`,
		"headers":       `"headers":{"X-A":"b"}`,
		"auth":          `"auth":{"kind":"bearer","token":"t"}`,
		"tls":           `"tls":{"ca":"x"}`,
	} {
		for _, a := range []answer{
			b.call("POST", "/v1/endpoints",
				`{"type":"pipe","stage":"second","listen":true,`+more+`}`),
			b.call("PATCH", "/v1/endpoints/"+l.ID, `{`+more+`}`),
		} {
			require.Equal(t, 400, a.status, "%s %s", field, a.body)
			assert.Equal(t, field, a.problem.Errors[0].Field)
		}
	}
	a := b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first"}`)
	require.Equal(t, 400, a.status, "%s", a.body)
	assert.Equal(t, "url", a.problem.Errors[0].Field)
	a = b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first","url":"listen:"}`)
	require.Equal(t, 400, a.status, "the stored form is not for callers: %s", a.body)

	for _, field := range []string{`"flow":{"max_in_flight":1}`, `"max_in_flight":1`,
		`"rate":"1/s"`} {
		doc := `{"stages":[{"name":"look"}],` + field + `}`
		require.Equal(t, 201, b.call("PUT", "/v1/task-types/limited", doc).status)
		listen := `{"type":"limited","stage":"look","listen":true}`
		a := b.call("POST", "/v1/endpoints", listen)
		require.Equal(t, 400, a.status, "%s", a.body)
		assert.Contains(t, a.problem.Errors[0].Message,
			"can't be combined with a stage of mode claim")
		plain := `{"stages":[{"name":"look"}]}`
		require.Equal(t, 200, b.call("PUT", "/v1/task-types/limited", plain).status)
		e := read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints", listen))
		assert.Equal(t, 400, b.call("PUT", "/v1/task-types/limited", doc).status)
		require.Equal(t, 204, b.call("DELETE", "/v1/endpoints/"+e.ID, "").status)
		require.Equal(t, 204, b.call("DELETE", "/v1/task-types/limited", "").status)
	}
}

// claimSigned claims a delivery of pipe/first with its headers, and returns its bytes, too.
func (b *bundle) claimSigned() (d api.Delivery, body []byte, headers map[string]string) {
	b.t.Helper()
	a := b.callAs(b.newToken("acme", auth.ScopeWork), "POST", "/v1/claims",
		`{"type":"pipe","stage":"first","claimer":"anna","signed":true,"wait":"10s"}`)
	require.Equal(b.t, 200, a.status, "%s", a.body)
	var doc struct {
		Claims  []json.RawMessage
		Headers []map[string]string
	}
	require.NoError(b.t, json.Unmarshal(a.body, &doc))
	require.Len(b.t, doc.Claims, 1)
	require.Len(b.t, doc.Headers, 1)
	require.NoError(b.t, json.Unmarshal(doc.Claims[0], &d))
	return d, doc.Claims[0], doc.Headers[0]
}

// A signed claim carries the headers of a push, and the answer to it counts as that to a push.
func TestSignedClaims(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(listening)
	id, _ := b.submitOne()
	d, body, headers := b.claimSigned()
	assert.Equal(t, id, d.TaskID)
	webhook, err := standardwebhooks.NewWebhook(e.Secret)
	require.NoError(t, err)
	h := http.Header{}
	for name, value := range headers {
		h.Set(name, value)
	}
	require.NoError(t, webhook.Verify(body, h))
	require.Error(t, webhook.Verify(append(bytes.Clone(body), ' '), h))
	assert.Equal(t, []string{"application/json", fmt.Sprintf("%s.%d", id, d.Seq)},
		[]string{h.Get("Content-Type"), h.Get("Webhook-Id")})
	assert.Greater(t, time.Until(d.Deadline), 2*asyncflow.FirstClaim,
		"the deadline is that of a push")

	assert.Equal(t, 401, b.call("POST", "/v1/claims/"+id+"/answer", `{"status":200}`).status)
	assert.Equal(t, 401, b.callAs(d.Callback.Token, "POST", "/v1/claims/x.1.1/answer",
		`{"status":200}`).status)
	assert.Equal(t, 400, b.report(d, "answer", `{}`).status)
	assert.Equal(t, 413, b.report(d, "answer", `{"status":200,"body":"`+strings.Repeat("A", 3<<20)+
		`"}`).status)
	require.Equal(t, 200, b.report(d, "answer", `{"status":202}`).status)
	assert.Equal(t, asyncflow.StatusRunning, b.task(id).Status)
	assert.Greater(t, time.Until(b.task(id).Deadline), 2*asyncflow.FirstClaim)
	answer := `{"status":200,"content_type":"application/json","body":"eyJvdXRwdXQiOiAxfQ=="}`
	require.Equal(t, 200, b.report(d, "answer", answer).status)
	require.Equal(t, 200, b.report(d, "answer", answer).status, "again")
	require.Equal(t, 409, b.report(d, "answer", `{"status":202}`).status)
	require.Equal(t, 409, b.report(d, "answer", `{"error":"refused"}`).status)
	assert.Equal(t, "second", b.task(id).Stage)
	attempt := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data[0]
	assert.Equal(t, []any{api.AttemptOutcome("done"), "anna"},
		[]any{attempt.Outcome, attempt.Claimer})
}

// Each answer gives the outcome that it would give after a push.
func TestAnswersOfClaims(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.createEndpoint(listening)
	for name, c := range map[string]struct{ answer, outcome, why string }{
		"refused": {`{"error":"no answer within 10s"}`, "failed", "no answer within 10s"},
		"500": {`{"status":500,"body":"b29wcw=="}`, "failed",
			"500 Internal Server Error: oops"},
		"broken": {`{"status":200,"error":"the answer broke off"}`, "failed",
			"the answer broke off"},
		"no JSON": {`{"status":200,"content_type":"text/html","body":"PGI+"}`, "failed",
			"the answer has a body of type"},
		"fail": {`{"status":200,"content_type":"application/json","body":"eyJvdXRjb21lIjoiZmFpbCIs` +
			`ImVycm9yIjoiYmFkIn0="}`, "rejected", "bad"},
		"cancel": {`{"status":200,"content_type":"application/json",` +
			`"body":"eyJvdXRjb21lIjoiY2FuY2VsIn0="}`, "cancelled", ""},
	} {
		id, _ := b.submitOne()
		d, _, _ := b.claimSigned()
		require.Equal(t, id, d.TaskID, name)
		require.Equal(t, 200, b.report(d, "answer", c.answer).status, name)
		attempt := read[api.AttemptList](b, 200,
			b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data[0]
		assert.Equal(t, c.outcome, string(attempt.Outcome), name)
		assert.Contains(t, attempt.Error, c.why, name)
		if b.task(id).Status == asyncflow.StatusWaiting { // it isn't to come again
			require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", "").status)
		}
	}
}

// Only deliveries of a stage with an endpoint for listening are signed.
func TestSignedClaimsNeedAListener(t *testing.T) {
	b := setup(t)
	b.claimed()
	id := b.submitJudge(1)[0]
	a := b.claimCall("anna", `,"signed":true`)
	require.Equal(t, 409, a.status, "%s", a.body)
	assert.Contains(t, a.problem.Detail, "no endpoint for listening")
	d := b.claim("anna", `,"wait":"10s"`)[0]
	assert.Equal(t, []any{id, 1, 1}, []any{d.TaskID, d.Attempt, d.Seq}, "it wasn't claimed")
}
