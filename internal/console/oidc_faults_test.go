package console_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/console"
)

const configurationPath = "/.well-known/openid-configuration"

// brief makes logins give up on an issuer soon.
func brief(cfg *console.Config) { cfg.OIDC.Timeout = 2 * time.Second }

// A node without its issuer works, and a login says what is wrong. The next one tries again.
func TestIssuerThatIsDown(t *testing.T) {
	b, i := setupOIDC(t)
	for name, answer := range map[string]http.HandlerFunc{
		"no answer":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a failure":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"a page":     func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) },
	} {
		i.with(func() { i.instead[configurationPath] = answer })
		t.Log(name)
		refused(t, b.do("GET", "/console/oidc", nil), 502, "it can&#39;t be reached")
	}
	assert.Zero(t, i.count("/x"))
	assert.Equal(t, 200, b.do("GET", "/console", nil).status)
	b.login(b.token)
	i.with(func() { delete(i.instead, configurationPath) })
	b.begin("/console")
}

// An issuer's configuration must lead to its endpoints by https.
func TestIssuerWithAWrongConfiguration(t *testing.T) {
	b, i := setupOIDC(t)
	for name, change := range map[string]func(map[string]any){
		"another issuer": func(doc map[string]any) { doc["issuer"] = "https://elsewhere.example" },
		"plain http":     func(doc map[string]any) { doc["token_endpoint"] = "http://elsewhere.example" },
		"a script": func(doc map[string]any) {
			doc["authorization_endpoint"] = "javascript:alert(1)"
		},
		"no keys": func(doc map[string]any) { delete(doc, "jwks_uri") },
		"a long endpoint": func(doc map[string]any) {
			doc["authorization_endpoint"] = "https://x/" + strings.Repeat("x", 2048)
		},
	} {
		i.with(func() { i.configure = change })
		t.Log(name)
		refused(t, b.do("GET", "/console/oidc", nil), 502, "failed")
	}
}

// An issuer that stalls keeps a login for a limited time, wherever it stalls. Logins that wait for
// its configuration share one request.
func TestIssuerThatStalls(t *testing.T) {
	b, i := setupOIDC(t, brief)
	ended := make(chan struct{})
	defer close(ended)
	var waiting atomic.Int64
	stall := func(_ http.ResponseWriter, r *http.Request) {
		waiting.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // else the server doesn't notice the end of the connection
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}
	i.with(func() { i.instead[configurationPath] = stall })
	var logins sync.WaitGroup
	for range 5 {
		logins.Go(func() { refused(t, b.do("GET", "/console/oidc", nil), 502, "failed") })
	}
	logins.Wait()
	assert.Less(t, waiting.Load(), int64(5))
	i.with(func() { delete(i.instead, configurationPath) })
	for _, path := range []string{"/token", "/keys"} {
		cookie, target := b.begin("/console")
		back := b.atIssuer(target)
		i.with(func() { i.instead[path] = stall })
		t.Log(path)
		refused(t, b.do("GET", back, fromElsewhere.with("Cookie", cookie)), 502, "failed")
		i.with(func() { delete(i.instead, path) })
	}
}

// Of an answer without end, a node reads little.
func TestIssuerThatAnswersWithoutEnd(t *testing.T) {
	b, i := setupOIDC(t)
	var sent atomic.Int64
	flood := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		part := []byte(strings.Repeat(" ", 64<<10))
		for range 100 << 20 / len(part) {
			n, err := w.Write(part)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	check := func(path string, a answer) {
		t.Helper()
		t.Log(path)
		refused(t, a, 502, "failed")
		assert.Positive(t, sent.Load())
		assert.Less(t, sent.Swap(0), int64(32<<20), "the connection's buffers hold some of it")
		i.with(func() { delete(i.instead, path) })
	}
	i.with(func() { i.instead[configurationPath] = flood })
	check(configurationPath, b.do("GET", "/console/oidc", nil))
	for _, path := range []string{"/token", "/keys"} {
		cookie, target := b.begin("/console")
		back := b.atIssuer(target)
		i.with(func() { i.instead[path] = flood })
		check(path, b.do("GET", back, fromElsewhere.with("Cookie", cookie)))
	}
}

// Settings that can't work are refused before the node starts.
func TestOIDCSettings(t *testing.T) {
	t.Parallel()
	good := console.OIDC{Issuer: "https://login.example.com/realm", ClientID: "x"}
	require.NoError(t, good.Check())
	require.NoError(t, console.OIDC{}.Check())
	for field, cases := range map[string][]console.OIDC{
		"oidc-issuer": {{Issuer: "http://login.example.com", ClientID: "x"},
			{Issuer: "login.example.com", ClientID: "x"}, {Issuer: "https://a:b@x", ClientID: "x"},
			{Issuer: "https://x?y", ClientID: "x"}, {ClientID: "x"}, {ClientSecret: "x"}},
		"oidc-client-id": {{Issuer: "https://x"}},
		"oidc-token":     {{Issuer: "https://x", ClientID: "x", Token: "refresh"}},
	} {
		for _, c := range cases {
			assert.ErrorContains(t, c.Check(), field, "%+v", c)
		}
	}
	for _, i := range []console.Instance{{Color: "red"}, {Color: "#12345"}, {Color: "#1234567"},
		{Color: "#12345g"}, {Name: strings.Repeat("x", 41)}, {Name: "a\nb"}, {Name: "\xff"}} {
		assert.Error(t, i.Check(), "%+v", i)
	}
	for _, cfg := range []console.Config{{Instance: console.Instance{Color: "red"}},
		{OIDC: console.OIDC{Issuer: "x"}}} {
		_, err := console.New(cfg)
		assert.Error(t, err, "%+v", cfg)
	}
	assert.NoError(t, console.Instance{Name: strings.Repeat("é", 40), Color: "#A0b1C2"}.Check())
}
