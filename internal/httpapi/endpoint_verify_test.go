package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// echoing is a worker that echoes the challenges that its secret signs.
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

// challenging returns an API that challenges endpoints, also on the loopback.
func challenging(t *testing.T) *bundle {
	b := setupWith(t, func(c *httpapi.Config) {
		c.VerifyEndpoints, c.Egress = true, asyncflow.Anywhere
		c.Sender = callbacks.NewSender(callbacks.Config{Egress: asyncflow.Anywhere}, c.Keys)
	})
	b.pipe()
	return b
}

func (b *bundle) serves() bool {
	b.t.Helper()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(b.t, err)
	return pipe.Serves("first")
}

// An endpoint gets deliveries once it echoes a challenge: at its creation if the worker knows the
// secret, else when it is verified later.
func TestEndpointsAreChallenged(t *testing.T) {
	b := challenging(t)
	w := newEchoing(t, ownSecret)
	later := b.createEndpoint(`"url":%q`, w.URL)
	assert.Equal(t, api.Unverified, later.Verification)
	assert.Contains(t, later.VerificationError,
		"the challenge was answered with 401; it must be 200 and the challenge")
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
	assert.Equal(t, proven.VerifiedAt,
		read[api.Endpoint](b, 200, b.call("GET", "/v1/endpoints/"+later.ID, "")).VerifiedAt)
	require.True(t, b.serves())
	read[any](b, 200, b.call("PATCH", "/v1/endpoints/"+later.ID, `{"weight":0}`))
	require.False(t, b.serves())

	w.learn(ownSecret)
	atOnce := b.createEndpoint(`"allow_duplicate":true,"url":%q,"secret":%q,"headers":{"x-key":"k"},`+
		`"auth":{"kind":"bearer","token":"t"}`, w.URL, ownSecret)
	assert.Equal(t, api.Verified, atOnce.Verification, atOnce.VerificationError)
	require.True(t, b.serves())
	last := w.requests()[len(w.requests())-1]
	assert.Equal(t, []string{"k", "Bearer t"},
		[]string{last.Get("X-Key"), last.Get("Authorization")})
	w.learn(signing.NewSecret())
	again := read[api.Endpoint](b, 200, b.call("POST", "/v1/endpoints/"+atOnce.ID+"/verify", ""))
	assert.NotEmpty(t, again.VerificationError)
	assert.Equal(t, api.Verified, again.Verification, "a failure takes nothing away")
	require.True(t, b.serves())
	assert.Equal(t, 404, b.call("POST", "/v1/endpoints/0190a6f0-0000-7000-8000-000000000009/verify",
		"").status)
	assert.Equal(t, 404, b.call("POST", "/v1/endpoints/x/verify", "").status)
}

// A new URL must be proven again; other changes need no proof.
func TestMovedEndpointsAreChallenged(t *testing.T) {
	b := challenging(t)
	w, stranger := newEchoing(t, ownSecret), newEchoing(t, signing.NewSecret())
	e := b.createEndpoint(`"url":%q,"secret":%q`, w.URL+"/a", ownSecret)
	require.Equal(t, api.Verified, e.Verification)
	n := len(w.requests())
	same := b.patchEndpoint(e.ID, `{"url":%q,"weight":3,"headers":{"X":"y"}}`, w.URL+"/a")
	assert.Equal(t, []any{api.Verified, 3, e.VerifiedAt},
		[]any{same.Verification, same.Weight, same.VerifiedAt})
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

// Without challenges, endpoints get deliveries at once.
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
	_, err := b.store.ChangeEndpoint(t.Context(), "acme", e.ID,
		func(e *asyncflow.Endpoint) error { e.Challenged = true; return nil })
	require.NoError(t, err)
	require.False(t, b.serves())
	_, err = b.store.ChangeEndpoint(t.Context(), "acme", e.ID,
		func(e *asyncflow.Endpoint) error { e.URL = "https://127.0.0.1:1/"; return nil })
	require.NoError(t, err)
	e = read[api.Endpoint](b, 200, b.call("POST", "/v1/endpoints/"+e.ID+"/verify", ""))
	assert.Contains(t, e.VerificationError, "the endpoint's URL must name its host")
	require.True(t, b.serves(), "challenges have been turned off since")
}

// The endpoint of alerts is challenged too: its URL is a tenant's choice.
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
	assert.Equal(t, api.Verified, read[api.Endpoint](b, 200,
		b.call("GET", "/v1/endpoints/"+failed.Endpoint, "")).Verification)
	n := len(w.requests())
	read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", body(w.URL)))
	assert.Len(t, w.requests(), n, "once is enough")
	b.patchEndpoint(failed.Endpoint, `{"headers":{"X":"y"}}`)
	a := b.call("PUT", "/v1/alerts", body("http://127.0.0.1:2/"))
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "url", a.problem.Errors[0].Field)
}
