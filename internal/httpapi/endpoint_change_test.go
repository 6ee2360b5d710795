package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Headers and credentials are shown with a mask, and never sent to another place than the one that
// they were given for.
func TestEndpointSettings(t *testing.T) {
	b := setup(t)
	b.pipe()
	const secret = "swordfish"
	e := b.createEndpoint(`"url":"https://w.example.com/x","weight":0,"headers":{"x-key":"swordfish"},
		"auth":{"kind":"oauth2","token_url":"https://login.example.com/","client_id":"me",
		"client_secret":"swordfish","scopes":["a"]}`)
	assert.Equal(t, 0, e.Weight)
	assert.Equal(t, map[string]string{"X-Key": "********"}, e.Headers)
	assert.Equal(t, asyncflow.EndpointAuth{Kind: "oauth2", TokenURL: "https://login.example.com/",
		ClientID: "me", ClientSecret: "********", Scopes: []string{"a"}}, e.Auth)
	for _, path := range []string{"/v1/endpoints", "/v1/endpoints/" + e.ID} {
		assert.NotContains(t, string(b.call("GET", path, "").body), secret)
	}
	var rows string
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT string_agg(encode(outbound, 'escape'), '') FROM tenant_acme.endpoints`).Scan(&rows))
	assert.NotContains(t, rows, secret)

	const elsewhere = "has another scheme, host or port: " +
		"give headers and auth again, or take them away"
	refused := func(body, field, says string) {
		t.Helper()
		a := b.call("PATCH", "/v1/endpoints/"+e.ID, body)
		require.Equal(t, 400, a.status, "%s", a.body)
		assert.Equal(t, []asyncflow.FieldError{{Field: field, Message: says}}, a.problem.Errors)
	}
	refused(`{"url":"https://evil.example.com/"}`, "url", elsewhere)
	refused(`{"url":"https://w.example.com:8443/x"}`, "url", elsewhere)
	refused(`{"url":"https://evil.example.com/","headers":{}}`, "url", elsewhere)
	refused(`{"url":"https://evil.example.com/","auth":{"kind":"none"}}`, "url", elsewhere)
	refused(`{"url":"http://w.example.com/x"}`, "url",
		"must be https: plain http is off (the operator's --allow-http)")
	refused(`{"headers":{"X-Key":"********"}}`, "headers.X-Key",
		"is the mask, not the value: leave headers out to keep them as they are")
	refused(`{"auth":{"kind":"bearer"}}`, "auth.token", "is required for auth of the kind bearer")
	refused(`{"tls":{"ca":"x"}}`, "tls.ca", "has no certificate in PEM")
	moved := b.patchEndpoint(e.ID, `{"url":"https://w.example.com/y"}`)
	assert.Equal(t, e.Headers, moved.Headers, "the same host may have them")
	assert.Equal(t, "oauth2", string(moved.Auth.Kind))
	gone := b.patchEndpoint(e.ID, `{"url":"https://other.example.com/y","headers":{},`+
		`"auth":{"kind":"none"},"tls":{}}`)
	assert.Empty(t, gone.Headers)
	assert.Zero(t, gone.Auth)
	stored, err := b.store.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	assert.Nil(t, stored.Outbound)
	assert.Equal(t, 404, b.call("PATCH", "/v1/endpoints/0190a6f0-0000-7000-8000-000000000009",
		`{"weight":1}`).status)
}

// An endpoint's limits can be set, changed, shown and removed.
func TestEndpointLimits(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x","max_in_flight":5,"rate":"100/s"`)
	assert.Equal(t, 5, e.MaxInFlight)
	assert.Equal(t, asyncflow.Rate{Count: 100, Per: time.Second}, e.Rate)
	stored := func() asyncflow.Limits {
		pipe, err := b.store.Catalog.Type("acme", "pipe")
		require.NoError(t, err)
		return pipe.Endpoints("first")[0].Limits
	}
	assert.Equal(t, asyncflow.Limits{MaxInFlight: 5,
		Rate: asyncflow.Rate{Count: 100, Per: time.Second}}, stored())
	b.patchEndpoint(e.ID, `{"weight":2}`)
	assert.Equal(t, 5, stored().MaxInFlight, "what is left out stays")
	b.patchEndpoint(e.ID, `{"max_in_flight":1000000}`)
	e = b.patchEndpoint(e.ID, `{"rate":"7/h"}`)
	assert.Equal(t, 1000000, e.MaxInFlight)
	assert.Equal(t, asyncflow.Rate{Count: 7, Per: time.Hour}, e.Rate)
	for _, body := range []string{`{"max_in_flight":-1}`, `{"max_in_flight":1000001}`,
		`{"max_in_flight":null}`, `{"max_in_flight":1.5}`} {
		assert.Equal(t, "max_in_flight",
			b.call("PATCH", "/v1/endpoints/"+e.ID, body).problem.Errors[0].Field, body)
	}
	for _, body := range []string{`{"rate":"7"}`, `{"rate":"0/s"}`, `{"rate":"1000001/s"}`,
		`{"rate":"1/d"}`, `{"rate":null}`} {
		assert.Equal(t, "rate", b.call("PATCH", "/v1/endpoints/"+e.ID,
			body).problem.Errors[0].Field, body)
	}
	e = b.patchEndpoint(e.ID, `{"max_in_flight":0,"rate":""}`)
	assert.Zero(t, e.MaxInFlight)
	assert.Zero(t, e.Rate)
	assert.Zero(t, stored())
	got := b.call("GET", "/v1/endpoints/"+e.ID, "")
	assert.NotContains(t, string(got.body), "max_in_flight")
	assert.NotContains(t, string(got.body), `"rate"`)
}

// An endpoint's batch can be set, changed, shown and removed.
func TestEndpointBatch(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x","batch":{"max_tasks":50,"max_wait":"20ms"}`)
	want := asyncflow.Batch{MaxTasks: 50, MaxWait: asyncflow.NewDuration(20 * time.Millisecond)}
	assert.Equal(t, want, e.Batch)
	stored := func() asyncflow.Batch {
		pipe, err := b.store.Catalog.Type("acme", "pipe")
		require.NoError(t, err)
		return pipe.Endpoints("first")[0].Batch
	}
	assert.Equal(t, want, stored())
	b.patchEndpoint(e.ID, `{"weight":2}`)
	assert.Equal(t, want, stored(), "what is left out stays")
	assert.Equal(t, asyncflow.Batch{MaxTasks: 1000},
		b.patchEndpoint(e.ID, `{"batch":{"max_tasks":1000}}`).Batch, "it is replaced as a whole")
	b.patchEndpoint(e.ID, `{"batch":{"max_tasks":1,"max_wait":"5s"}}`)
	for body, field := range map[string]string{
		`{"max_tasks":1001}`: "batch.max_tasks", `{"max_tasks":-1}`: "batch.max_tasks",
		`{"max_tasks":"5"}`: "batch.max_tasks", `{"max_wait":"1s"}`: "batch.max_tasks",
		`{"max_tasks":5,"max_wait":"5001ms"}`: "batch.max_wait",
		`{"max_tasks":5,"max_wait":"-1s"}`:    "batch.max_wait",
		`{"max_tasks":5,"max_wait":5}`:        "batch.max_wait",
		`null`:                                "batch", `5`: "batch", `{"max":5}`: "batch.max",
	} {
		for _, a := range []answer{b.call("PATCH", "/v1/endpoints/"+e.ID, `{"batch":`+body+`}`),
			b.call("POST", "/v1/endpoints",
				`{"type":"pipe","stage":"first","url":"https://w.example.com/y","batch":`+body+`}`)} {
			require.Equal(t, 400, a.status, "%s: %s", body, a.body)
			assert.Equal(t, field, a.problem.Errors[0].Field, "%s: %s", body, a.body)
		}
	}
	assert.Zero(t, b.patchEndpoint(e.ID, `{"batch":{}}`).Batch)
	assert.Zero(t, stored())
	assert.NotContains(t, string(b.call("GET", "/v1/endpoints/"+e.ID, "").body), "batch")
}
