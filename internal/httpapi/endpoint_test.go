package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/signing"
)

const ownSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// echoing is a worker that echoes challenges that are signed with its secret.
type echoing struct {
	*httptest.Server
	mu     sync.Mutex
	secret string
	seen   []http.Header
}

func newEchoing(t *testing.T, secret string) *echoing {
	w := &echoing{secret: secret}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, r.Header)
		body, _ := io.ReadAll(r.Body)
		webhook, err := standardwebhooks.NewWebhook(w.secret)
		if err != nil || webhook.Verify(body, r.Header) != nil {
			rw.WriteHeader(401)
			return
		}
		var c struct{ Type, Challenge string }
		if json.Unmarshal(body, &c) == nil && c.Type == "asyncflow.challenge" {
			json.NewEncoder(rw).Encode(map[string]string{"challenge": c.Challenge})
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *echoing) learn(secret string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secret = secret
}

func (w *echoing) requests() []http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// challenging is an API that challenges endpoints, also those on the loopback.
func challenging(t *testing.T) *bundle {
	b := setupWith(t, func(c *httpapi.Config) {
		c.VerifyEndpoints, c.Egress = true, asyncflow.Anywhere
		c.Sender = callbacks.NewSender(callbacks.Config{Egress: asyncflow.Anywhere}, c.Keys)
	})
	b.pipe()
	return b
}

func (b *bundle) createEndpoint(body string, args ...any) api.Endpoint {
	b.t.Helper()
	return read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first",`+fmt.Sprintf(body, args...)+"}"))
}

func (b *bundle) patchEndpoint(id, body string, args ...any) api.Endpoint {
	b.t.Helper()
	return read[api.Endpoint](b, 200, b.call("PATCH", "/v1/endpoints/"+id, fmt.Sprintf(body, args...)))
}

func (b *bundle) serves() bool {
	b.t.Helper()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(b.t, err)
	return pipe.Serves("first")
}

// An endpoint gets deliveries once it has echoed a challenge: at its creation if the
// worker knows the secret, else when it is verified later.
func TestEndpointsAreChallenged(t *testing.T) {
	b := challenging(t)
	w := newEchoing(t, ownSecret)
	later := b.createEndpoint(`"url":%q`, w.URL)
	assert.Equal(t, api.Unverified, later.Verification)
	assert.Contains(t, later.VerificationError, "the challenge was answered with 401; it must be 200 and the challenge")
	assert.Contains(t, later.VerificationError, "by another secret than theirs")
	assert.Zero(t, later.VerifiedAt)
	require.False(t, b.serves())
	id, _ := b.submitOne()
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.Equal(t, "endpoint", string(task.WaitsFor), "as if there were none")

	failed := read[api.Endpoint](b, 200, b.call("POST", "/v1/endpoints/"+later.ID+"/verify", ""))
	assert.Equal(t, later.VerificationError, failed.VerificationError)
	w.learn(later.Secret)
	proven := read[api.Endpoint](b, 200, b.call("POST", "/v1/endpoints/"+later.ID+"/verify", ""))
	assert.Equal(t, api.Verified, proven.Verification)
	assert.Empty(t, proven.VerificationError)
	assert.WithinDuration(t, time.Now(), proven.VerifiedAt, time.Minute)
	assert.Equal(t, proven.VerifiedAt, read[api.Endpoint](b, 200, b.call("GET", "/v1/endpoints/"+later.ID, "")).VerifiedAt)
	require.True(t, b.serves())
	read[any](b, 200, b.call("PATCH", "/v1/endpoints/"+later.ID, `{"weight":0}`))
	require.False(t, b.serves())

	w.learn(ownSecret)
	atOnce := b.createEndpoint(`"allow_duplicate":true,"url":%q,"secret":%q,"headers":{"x-key":"k"},"auth":{"kind":"bearer","token":"t"}`, w.URL, ownSecret)
	assert.Equal(t, api.Verified, atOnce.Verification, atOnce.VerificationError)
	require.True(t, b.serves())
	last := w.requests()[len(w.requests())-1]
	assert.Equal(t, []string{"k", "Bearer t"}, []string{last.Get("X-Key"), last.Get("Authorization")})
	w.learn(signing.NewSecret())
	again := read[api.Endpoint](b, 200, b.call("POST", "/v1/endpoints/"+atOnce.ID+"/verify", ""))
	assert.NotEmpty(t, again.VerificationError)
	assert.Equal(t, api.Verified, again.Verification, "a failure takes nothing away")
	require.True(t, b.serves())
	assert.Equal(t, 404, b.call("POST", "/v1/endpoints/0190a6f0-0000-7000-8000-000000000009/verify", "").status)
	assert.Equal(t, 404, b.call("POST", "/v1/endpoints/x/verify", "").status)
}

// Another URL has to be proven again; what else is changed doesn't matter.
func TestMovedEndpointsAreChallenged(t *testing.T) {
	b := challenging(t)
	w, stranger := newEchoing(t, ownSecret), newEchoing(t, signing.NewSecret())
	e := b.createEndpoint(`"url":%q,"secret":%q`, w.URL+"/a", ownSecret)
	require.Equal(t, api.Verified, e.Verification)
	n := len(w.requests())
	same := b.patchEndpoint(e.ID, `{"url":%q,"weight":3,"headers":{"X":"y"}}`, w.URL+"/a")
	assert.Equal(t, []any{api.Verified, 3, e.VerifiedAt}, []any{same.Verification, same.Weight, same.VerifiedAt})
	assert.Len(t, w.requests(), n)

	moved := b.patchEndpoint(e.ID, `{"url":%q}`, w.URL+"/b")
	assert.Equal(t, api.Verified, moved.Verification)
	assert.True(t, moved.VerifiedAt.After(e.VerifiedAt))
	assert.Len(t, w.requests(), n+1)
	lost := b.patchEndpoint(e.ID, `{"url":%q,"headers":{}}`, stranger.URL)
	assert.Equal(t, api.Unverified, lost.Verification)
	assert.NotEmpty(t, lost.VerificationError)
	assert.Zero(t, lost.VerifiedAt)
	require.False(t, b.serves())
	assert.Empty(t, stranger.requests()[0].Get("X"))
}

// Without challenges endpoints are used as they are.
func TestUnchallengedEndpoints(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	assert.Equal(t, api.Unneeded, e.Verification)
	assert.Equal(t, 1, e.Weight)
	require.True(t, b.serves())
	e = b.patchEndpoint(e.ID, `{"url":"https://w2.example.com/x"}`)
	assert.Equal(t, api.Unneeded, e.Verification)
	require.True(t, b.serves())
	_, err := b.store.ChangeEndpoint(t.Context(), "acme", e.ID, func(e *asyncflow.Endpoint) error { e.Challenged = true; return nil })
	require.NoError(t, err)
	require.False(t, b.serves())
	_, err = b.store.ChangeEndpoint(t.Context(), "acme", e.ID, func(e *asyncflow.Endpoint) error { e.URL = "https://127.0.0.1:1/"; return nil })
	require.NoError(t, err)
	e = read[api.Endpoint](b, 200, b.call("POST", "/v1/endpoints/"+e.ID+"/verify", ""))
	assert.Contains(t, e.VerificationError, "the endpoint's URL must name its host")
	require.True(t, b.serves(), "challenges have been turned off since")
}

// Headers and credentials are shown with a mask, and never sent to another place than
// the one that they were given for.
func TestEndpointSettings(t *testing.T) {
	b := setup(t)
	b.pipe()
	const secret = "swordfish"
	e := b.createEndpoint(`"url":"https://w.example.com/x","weight":0,"headers":{"x-key":"swordfish"},
		"auth":{"kind":"oauth2","token_url":"https://login.example.com/","client_id":"me","client_secret":"swordfish","scopes":["a"]}`)
	assert.Equal(t, 0, e.Weight)
	assert.Equal(t, map[string]string{"X-Key": "********"}, e.Headers)
	assert.Equal(t, asyncflow.EndpointAuth{Kind: "oauth2", TokenURL: "https://login.example.com/", ClientID: "me", ClientSecret: "********", Scopes: []string{"a"}}, e.Auth)
	for _, path := range []string{"/v1/endpoints", "/v1/endpoints/" + e.ID} {
		assert.NotContains(t, string(b.call("GET", path, "").body), secret)
	}
	var rows string
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT string_agg(encode(outbound, 'escape'), '') FROM tenant_acme.endpoints`).Scan(&rows))
	assert.NotContains(t, rows, secret)

	const elsewhere = "has another scheme, host or port: give headers and auth again, or take them away"
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
	refused(`{"url":"http://w.example.com/x"}`, "url", "must be https: plain http is off (the operator's --allow-http)")
	refused(`{"headers":{"X-Key":"********"}}`, "headers.X-Key", "is the mask, not the value: leave headers out to keep them as they are")
	refused(`{"auth":{"kind":"bearer"}}`, "auth.token", "is required for auth of the kind bearer")
	refused(`{"tls":{"ca":"x"}}`, "tls.ca", "has no certificate in PEM")
	moved := b.patchEndpoint(e.ID, `{"url":"https://w.example.com/y"}`)
	assert.Equal(t, e.Headers, moved.Headers, "the same host may have them")
	assert.Equal(t, "oauth2", string(moved.Auth.Kind))
	gone := b.patchEndpoint(e.ID, `{"url":"https://other.example.com/y","headers":{},"auth":{"kind":"none"},"tls":{}}`)
	assert.Empty(t, gone.Headers)
	assert.Zero(t, gone.Auth)
	stored, err := b.store.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	assert.Nil(t, stored.Outbound)
	assert.Equal(t, 404, b.call("PATCH", "/v1/endpoints/0190a6f0-0000-7000-8000-000000000009", `{"weight":1}`).status)
}

func TestRotateEndpointSecret(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	require.Len(t, e.Secrets, 1)
	assert.Equal(t, asyncflow.SecretHMAC, e.Secrets[0].Kind)
	assert.Zero(t, e.OldSecretSignsUntil)
	path := "/v1/endpoints/" + e.ID
	rotate := func(body string) answer { return b.call("POST", path+"/rotate-secret", body) }
	second := read[api.Endpoint](b, 200, rotate(""))
	require.NoError(t, signing.CheckSecret(second.Secret))
	assert.NotEqual(t, e.Secret, second.Secret)
	require.Len(t, second.Secrets, 2)
	assert.Zero(t, second.Secrets[0].ExpiresAt)
	assert.Equal(t, e.Secrets[0].ID, second.Secrets[1].ID)
	assert.WithinDuration(t, time.Now().Add(24*time.Hour), second.OldSecretSignsUntil, time.Minute)
	assert.Equal(t, second.OldSecretSignsUntil, second.Secrets[1].ExpiresAt)

	third := read[api.Endpoint](b, 200, rotate(`{"overlap":"1h","kind":"ed25519"}`))
	assert.Empty(t, third.Secret, "a private key is never shown")
	require.Len(t, third.Secrets, 3)
	assert.True(t, strings.HasPrefix(third.Secrets[0].PublicKey, "whpk_"))
	assert.WithinDuration(t, time.Now().Add(time.Hour), third.OldSecretSignsUntil, time.Minute)
	shown := read[api.Endpoint](b, 200, b.call("GET", path, ""))
	assert.Equal(t, third.Secrets, shown.Secrets)
	assert.Empty(t, shown.Secret)

	a := rotate("")
	assert.Equal(t, 409, a.status)
	assert.Equal(t, "the endpoint has 3 secrets that sign; wait until one has ended, or rotate with the overlap 0s", a.problem.Detail)
	for body, field := range map[string]string{
		`{"overlap":"721h"}`:   "overlap",
		`{"secret":"whsec_x"}`: "secret",
		`{"kind":"rsa"}`:       "kind",
		`{"kind":"ed25519","secret":"` + ownSecret + `"}`: "kind",
		`{"secret":"` + second.Secret + `"}`:              "secret",
	} {
		a := rotate(body)
		require.Equal(t, 400, a.status, body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
		assert.NotContains(t, string(a.body), "whsec_M")
	}
	fourth := read[api.Endpoint](b, 200, rotate(`{"overlap":"0s"}`))
	require.Len(t, fourth.Secrets, 1)
	assert.Equal(t, asyncflow.SecretEd25519, fourth.Secrets[0].Kind, "the kind stays")
	own := read[api.Endpoint](b, 200, rotate(`{"overlap":"0s","secret":"`+ownSecret+`"}`))
	assert.Equal(t, ownSecret, own.Secret)
	assert.Equal(t, asyncflow.SecretHMAC, own.Secrets[0].Kind)
	assert.Equal(t, 404, b.call("POST", "/v1/endpoints/0190a6f0-0000-7000-8000-000000000009/rotate-secret", "").status)

	ed := b.createEndpoint(`"url":"https://w.example.com/ed","secret_kind":"ed25519"`)
	assert.Empty(t, ed.Secret)
	assert.True(t, strings.HasPrefix(ed.Secrets[0].PublicKey, "whpk_"))
	a = b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first","url":"https://w.example.com/x","secret_kind":"ed25519","secret":"`+ownSecret+`"}`)
	assert.Equal(t, "secret_kind is ed25519, but the secret is of the kind hmac", a.problem.Detail)
}

// Where alerts go is a tenant's choice: it is challenged, too.
func TestAlertsAreChallenged(t *testing.T) {
	b := challenging(t)
	w := newEchoing(t, ownSecret)
	body := func(url string) string {
		return fmt.Sprintf(`{"url":%q,"secret":%q,"rules":{"failure_rate":1}}`, url, ownSecret)
	}
	failed := read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", body("http://127.0.0.1:1/")))
	assert.NotEmpty(t, failed.VerificationError)
	e := read[api.Endpoint](b, 200, b.call("GET", "/v1/endpoints/"+failed.Endpoint, ""))
	assert.Equal(t, api.Unverified, e.Verification)
	good := read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", body(w.URL)))
	assert.Empty(t, good.VerificationError)
	assert.Equal(t, api.Verified, read[api.Endpoint](b, 200, b.call("GET", "/v1/endpoints/"+failed.Endpoint, "")).Verification)
	n := len(w.requests())
	read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", body(w.URL)))
	assert.Len(t, w.requests(), n, "once is enough")
	b.patchEndpoint(failed.Endpoint, `{"headers":{"X":"y"}}`)
	a := b.call("PUT", "/v1/alerts", body("http://127.0.0.1:2/"))
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "url", a.problem.Errors[0].Field)
}

// An endpoint's limits are given, changed, shown and taken away.
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
	assert.Equal(t, asyncflow.Limits{MaxInFlight: 5, Rate: asyncflow.Rate{Count: 100, Per: time.Second}}, stored())
	b.patchEndpoint(e.ID, `{"weight":2}`)
	assert.Equal(t, 5, stored().MaxInFlight, "what is left out stays")
	b.patchEndpoint(e.ID, `{"max_in_flight":1000000}`)
	e = b.patchEndpoint(e.ID, `{"rate":"7/h"}`)
	assert.Equal(t, 1000000, e.MaxInFlight)
	assert.Equal(t, asyncflow.Rate{Count: 7, Per: time.Hour}, e.Rate)
	for _, body := range []string{`{"max_in_flight":-1}`, `{"max_in_flight":1000001}`, `{"max_in_flight":null}`, `{"max_in_flight":1.5}`} {
		assert.Equal(t, "max_in_flight", b.call("PATCH", "/v1/endpoints/"+e.ID, body).problem.Errors[0].Field, body)
	}
	for _, body := range []string{`{"rate":"7"}`, `{"rate":"0/s"}`, `{"rate":"1000001/s"}`, `{"rate":"1/d"}`, `{"rate":null}`} {
		assert.Equal(t, "rate", b.call("PATCH", "/v1/endpoints/"+e.ID, body).problem.Errors[0].Field, body)
	}
	e = b.patchEndpoint(e.ID, `{"max_in_flight":0,"rate":""}`)
	assert.Zero(t, e.MaxInFlight)
	assert.Zero(t, e.Rate)
	assert.Zero(t, stored())
	got := b.call("GET", "/v1/endpoints/"+e.ID, "")
	assert.NotContains(t, string(got.body), "max_in_flight")
	assert.NotContains(t, string(got.body), `"rate"`)
}

// An endpoint's batch is given, changed, shown and taken away.
func TestEndpointBatch(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x","batch":{"max_tasks":50,"max_wait":"20ms"}`)
	want := asyncflow.Batch{MaxTasks: 50, MaxWait: asyncflow.Duration(20 * time.Millisecond)}
	assert.Equal(t, want, e.Batch)
	stored := func() asyncflow.Batch {
		pipe, err := b.store.Catalog.Type("acme", "pipe")
		require.NoError(t, err)
		return pipe.Endpoints("first")[0].Batch
	}
	assert.Equal(t, want, stored())
	b.patchEndpoint(e.ID, `{"weight":2}`)
	assert.Equal(t, want, stored(), "what is left out stays")
	assert.Equal(t, asyncflow.Batch{MaxTasks: 1000}, b.patchEndpoint(e.ID, `{"batch":{"max_tasks":1000}}`).Batch, "it is replaced as a whole")
	b.patchEndpoint(e.ID, `{"batch":{"max_tasks":1,"max_wait":"5s"}}`)
	for body, field := range map[string]string{
		`{"max_tasks":1001}`: "batch.max_tasks", `{"max_tasks":-1}`: "batch.max_tasks", `{"max_tasks":"5"}`: "batch.max_tasks", `{"max_wait":"1s"}`: "batch.max_tasks",
		`{"max_tasks":5,"max_wait":"5001ms"}`: "batch.max_wait", `{"max_tasks":5,"max_wait":"-1s"}`: "batch.max_wait", `{"max_tasks":5,"max_wait":5}`: "batch.max_wait",
		`null`: "batch", `5`: "batch", `{"max":5}`: "batch.max",
	} {
		for _, a := range []answer{b.call("PATCH", "/v1/endpoints/"+e.ID, `{"batch":`+body+`}`),
			b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first","url":"https://w.example.com/y","batch":`+body+`}`)} {
			require.Equal(t, 400, a.status, "%s: %s", body, a.body)
			assert.Equal(t, field, a.problem.Errors[0].Field, "%s: %s", body, a.body)
		}
	}
	assert.Zero(t, b.patchEndpoint(e.ID, `{"batch":{}}`).Batch)
	assert.Zero(t, stored())
	assert.NotContains(t, string(b.call("GET", "/v1/endpoints/"+e.ID, "").body), "batch")
}

// An endpoint shows how it is doing; whoever manages it may take it for well.
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
	set(asyncflow.Health{State: asyncflow.HealthOpen, Since: now, Until: now.Add(time.Hour), Pause: time.Hour, Reason: "connection refused"})
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthOpen, Since: now, Until: now.Add(time.Hour), Reason: "connection refused"}, health())
	set(asyncflow.Health{State: asyncflow.HealthOpen, Since: now.Add(-time.Hour), Until: now.Add(-time.Minute), Pause: time.Hour, Reason: "connection refused"})
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthHalfOpen, Since: now.Add(-time.Minute), Reason: "connection refused"}, health())
	set(asyncflow.Health{State: asyncflow.HealthDisabled, Since: now.Add(time.Second), Reason: "410 Gone"})
	assert.Equal(t, asyncflow.HealthDisabled, health().State)
	b.patchEndpoint(e.ID, `{"weight":3}`)
	assert.Equal(t, asyncflow.HealthDisabled, health().State, "a change of something else says nothing of it")

	_, err := b.db.Exec(t.Context(), `INSERT INTO tenant_acme.endpoint_minutes (endpoint, at, attempts, failures)
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
	assert.Equal(t, enabled, read[api.Endpoint](b, 200, b.call("POST", path+"/enable", "")), "to one that is closed it does nothing")
	set(asyncflow.Health{State: asyncflow.HealthDisabled, Since: now, Reason: "410 Gone"})
	moved := b.patchEndpoint(e.ID, `{"url":"https://w2.example.com/x"}`)
	assert.Equal(t, api.EndpointHealth{State: asyncflow.HealthClosed}, moved.Health, "how another URL did says nothing of it")
	for _, path := range []string{"/v1/endpoints/no/enable", "/v1/endpoints/0190a6f0-0000-7000-8000-000000000001/enable"} {
		assert.Equal(t, 404, b.call("POST", path, "").status)
	}
}
