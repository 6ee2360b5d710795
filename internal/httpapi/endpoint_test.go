package httpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/signing"
)

const ownSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func (b *bundle) createEndpoint(body string, args ...any) api.Endpoint {
	b.t.Helper()
	return read[api.Endpoint](b, 201,
		b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first",`+fmt.Sprintf(body,
			args...)+"}"))
}

func (b *bundle) patchEndpoint(id, body string, args ...any) api.Endpoint {
	b.t.Helper()
	return read[api.Endpoint](b, 200, b.call("PATCH", "/v1/endpoints/"+id,
		fmt.Sprintf(body, args...)))
}

// An endpoint shows its health, and a caller with the scope manage can reset it.
func TestEndpointHealth(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthClosed}, e.Health)
	path := "/v1/endpoints/" + e.ID
	health := func() api.EndpointHealth {
		t.Helper()
		one := read[api.Endpoint](b, 200, b.call("GET", path, ""))
		list := read[api.EndpointList](b, 200, b.call("GET", "/v1/endpoints", ""))
		assert.Equal(t, []api.Endpoint{one}, list.Data)
		return one.Health
	}
	set := func(h asyncflow.Health) {
		t.Helper()
		now, err := b.store.Endpoint(t.Context(), "acme", e.ID)
		require.NoError(t, err)
		ok, err := b.store.SetHealth(t.Context(), "acme", e.ID, now.Health, h)
		require.NoError(t, err)
		require.True(t, ok)
	}
	now := b.store.Clock.Now().Truncate(time.Microsecond)
	set(asyncflow.Health{State: asyncflow.HealthOpen, Since: now, Until: now.Add(time.Hour),
		Pause: time.Hour, Reason: "connection refused"})
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthOpen, Since: now,
		Until: now.Add(time.Hour), Reason: "connection refused"}, health())
	set(asyncflow.Health{State: asyncflow.HealthOpen, Since: now.Add(-time.Hour),
		Until: now.Add(-time.Minute), Pause: time.Hour, Reason: "connection refused"})
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthHalfOpen,
		Since: now.Add(-time.Minute), Reason: "connection refused"}, health())
	set(asyncflow.Health{State: asyncflow.HealthDisabled, Since: now.Add(time.Second),
		Reason: "410 Gone"})
	assert.Equal(t, asyncflow.HealthDisabled, health().State)
	b.patchEndpoint(e.ID, `{"weight":3}`)
	assert.Equal(t, asyncflow.HealthDisabled, health().State,
		"a change of something else says nothing of it")

	_, err := b.db.Exec(t.Context(), `
		INSERT INTO tenant_acme.endpoint_minutes (endpoint, at, attempts, failures)
		VALUES ($1, date_trunc('minute', now()), 12, 10), ($1, now() - interval '30 min', 7, 7)`, e.ID)
	require.NoError(t, err)
	assert.Equal(t, []int64{12, 10}, []int64{health().Attempts, health().Failures})
	b.call("DELETE", path, "")
	assert.Equal(t, 404, b.call("POST", path+"/enable", "").status)

	e = b.createEndpoint(`"url":"https://w.example.com/x"`)
	path = "/v1/endpoints/" + e.ID
	set(asyncflow.Health{State: asyncflow.HealthDisabled, Since: now, Reason: "410 Gone"})
	enabled := read[api.Endpoint](b, 200, b.call("POST", path+"/enable", ""))
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthClosed}, enabled.Health)
	assert.Equal(t, enabled.Health, health())
	assert.Equal(t, enabled, read[api.Endpoint](b, 200, b.call("POST", path+"/enable", "")),
		"to one that is closed it does nothing")
	set(asyncflow.Health{State: asyncflow.HealthDisabled, Since: now, Reason: "410 Gone"})
	moved := b.patchEndpoint(e.ID, `{"url":"https://w2.example.com/x"}`)
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthClosed}, moved.Health,
		"how another URL did says nothing of it")
	for _, path := range []string{"/v1/endpoints/no/enable",
		"/v1/endpoints/0190a6f0-0000-7000-8000-000000000001/enable"} {
		assert.Equal(t, 404, b.call("POST", path, "").status)
	}
}

func TestEndpoints(t *testing.T) {
	b := setup(t)
	b.pipe()
	made := read[api.Endpoint](b, 201,
		b.call("POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://w.example.com/x"}`))
	require.NoError(t, signing.CheckSecret(made.Secret))
	a := b.call("GET", "/v1/endpoints/"+made.ID, "")
	assert.NotContains(t, string(a.body), made.Secret[6:], "it is shown once")
	list := read[api.EndpointList](b, 200, b.call("GET", "/v1/endpoints?type=pipe", ""))
	require.Len(t, list.Data, 1)
	assert.Empty(t, list.Data[0].Secret)
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	sealed := pipe.Endpoints("first")[0]
	assert.NotContains(t, string(sealed.Secrets[0].Sealed), made.Secret[6:],
		"it is not stored in clear")
	secret, err := b.keys.Open(sealed.Secrets[0].Sealed, sealed.ID)
	require.NoError(t, err)
	assert.Equal(t, made.Secret, secret)
	own := signing.NewSecret()
	second := read[api.Endpoint](b, 201,
		b.call("POST", "/v1/endpoints",
			fmt.Sprintf(`{"type":"pipe","stage":"first","url":"https://w2.example.com/x","secret":%q}`,
				own)))
	assert.Equal(t, own, second.Secret)
	assert.Equal(t, 204, b.call("DELETE", "/v1/endpoints/"+made.ID, "").status)
	assert.Equal(t, 404, b.call("DELETE", "/v1/endpoints/"+made.ID, "").status)
}

// A URL is registered once for a stage, unless allow_duplicate is true.
func TestEndpointsWithTheSameURL(t *testing.T) {
	b := setup(t)
	b.pipe()
	first := b.createEndpoint(`"url":"https://w.example.com/a"`)
	again := b.call(
		"POST",
		"/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://W.example.com:443/a"}`,
	)
	require.Equal(t, 409, again.status, "%s", again.body)
	assert.Equal(t, "conflict", again.problem.Code)
	assert.Contains(t, again.problem.Detail, first.ID)
	assert.Equal(t, "url", again.problem.Errors[0].Field)
	second := b.createEndpoint(`"url":"https://w.example.com/a","allow_duplicate":true`)
	third := b.createEndpoint(`"url":"https://w.example.com/b"`)
	moved := b.call("PATCH", "/v1/endpoints/"+third.ID, `{"url":"https://w.example.com/a"}`)
	require.Equal(t, 409, moved.status, "%s", moved.body)
	assert.Contains(t, moved.problem.Detail, first.ID)
	b.patchEndpoint(third.ID, `{"url":"https://w.example.com/a","allow_duplicate":true}`)
	b.patchEndpoint(second.ID, `{"weight":7,"url":"https://w.example.com/a"}`)

	b.quota(`{"endpoints":3}`)
	over := b.call(
		"POST",
		"/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/c"}`,
	)
	require.Equal(t, 403, over.status, "%s", over.body)
	assert.Equal(t, "quota_exceeded", over.problem.Code)
	quota, err := json.Marshal(over.problem.Quota)
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"endpoints","limit":3,"used":3}`, string(quota))
}
