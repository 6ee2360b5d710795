package console_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/console"
)

const (
	clientID    = "asyncflow-console"
	loginCookie = "__Host-asyncflow_login"
)

// testIssuer is an issuer of OpenID Connect that logs in everyone as ann of acme.
type testIssuer struct {
	*httptest.Server
	t       *testing.T
	private []byte // PEM
	public  []byte
	secret  string // of the client; "": a public client

	mu        sync.Mutex
	asked     url.Values                  // what the last authorization asked for
	code      string                      // that may be redeemed, once
	claims    map[string]any              // that replace those of the tokens
	instead   map[string]http.HandlerFunc // replaces the answer at a path
	configure func(map[string]any)        // changes the configuration
	counts    map[string]int              // of requests, by path
}

func startIssuer(t *testing.T) *testIssuer {
	t.Helper()
	i := &testIssuer{t: t, claims: map[string]any{}, instead: map[string]http.HandlerFunc{},
		counts: map[string]int{}}
	var err error
	i.private, i.public, err = auth.GenerateKey("ES256", "key-1")
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.configuration)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /keys", i.keys)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.counts[r.URL.Path]++
		instead := i.instead[r.URL.Path]
		i.mu.Unlock()
		if instead != nil {
			instead(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *testIssuer) configuration(w http.ResponseWriter, _ *http.Request) {
	doc := map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize",
		"token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
		"id_token_signing_alg_values_supported": []string{"ES256"}}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.configure != nil {
		i.configure(doc)
	}
	writeJSON(w, 200, doc)
}

// authorize sends the browser back with a code, without asking for a password.
func (i *testIssuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked, i.code = r.URL.Query(), "code-"+i.t.Name()
	back := url.Values{"code": {i.code}, "state": {i.asked.Get("state")}, "iss": {i.URL}}
	http.Redirect(w, r, i.asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token redeems a code. It checks what a real issuer checks.
func (i *testIssuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	id, secret := r.FormValue("client_id"), ""
	if user, password, ok := r.BasicAuth(); ok {
		id = user
		secret, _ = url.QueryUnescape(password) // RFC 6749, section 2.3.1
	}
	good := i.code != "" && r.FormValue("code") == i.code &&
		i.asked.Get("code_challenge_method") == "S256" &&
		i.asked.Get("code_challenge") == challenge &&
		i.asked.Get("redirect_uri") == r.FormValue("redirect_uri") &&
		id == clientID && secret == i.secret
	i.code = ""
	if !good {
		writeJSON(w, 400, map[string]any{"error": "invalid_grant"})
		return
	}
	writeJSON(w, 200, map[string]any{"token_type": "Bearer", "expires_in": 3600,
		"id_token": i.sign("JWT",
			map[string]any{"aud": clientID, "nonce": i.asked.Get("nonce")}),
		"access_token": i.sign("at+jwt",
			map[string]any{"aud": "asyncflow", "sub": "ann-by-access"})})
}

// sign returns a token of a type with claims beside the ones of every token.
func (i *testIssuer) sign(typ string, claims map[string]any) string {
	all := jwt.MapClaims{"iss": i.URL, "sub": "ann", "tenant": "acme", "scope": "read",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for _, more := range []map[string]any{claims, i.claims} {
		for name, value := range more {
			all[name] = value
		}
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, all)
	token.Header["kid"], token.Header["typ"] = "key-1", typ
	key, err := jwt.ParseECPrivateKeyFromPEM(i.private)
	if !assert.NoError(i.t, err) {
		return ""
	}
	text, err := token.SignedString(key)
	assert.NoError(i.t, err)
	return text
}

func (i *testIssuer) keys(w http.ResponseWriter, _ *http.Request) {
	keys, err := auth.ReadKeys(i.public)
	assert.NoError(i.t, err)
	doc, err := keys.JWKS()
	assert.NoError(i.t, err)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(doc)
}

func writeJSON(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

// with changes the issuer.
func (i *testIssuer) with(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// count returns how many requests there were for a path.
func (i *testIssuer) count(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.counts[path]
}

// verifier trusts the bundle's issuer, and the ID tokens of this one.
func (i *testIssuer) verifier(typ, audience string) *auth.Verifier {
	i.t.Helper()
	cfg := auth.DefaultConfig()
	cfg.Issuer, cfg.Audience, cfg.TokenType, cfg.AdminType = i.URL, audience, typ, ""
	cfg.PublicKeys = i.public
	v, err := auth.NewVerifier(authConfig(), cfg)
	require.NoError(i.t, err)
	return v
}

// setupOIDC starts an issuer and a server with a console that offers a login there.
func setupOIDC(t *testing.T, configure ...func(*console.Config)) (*bundle, *testIssuer) {
	t.Helper()
	b := setup(t)
	i := startIssuer(t)
	b.serveOIDC(i, configure...)
	return b, i
}

func (b *bundle) serveOIDC(i *testIssuer, configure ...func(*console.Config)) {
	b.t.Helper()
	b.serve(append([]func(*console.Config){func(cfg *console.Config) {
		cfg.Verifier = i.verifier("JWT", clientID)
		cfg.OIDC = console.OIDC{Issuer: i.URL, ClientID: clientID}
		cfg.PublicURL = b.url
	}}, configure...)...)
}

// begin begins a login and returns the cookie that it sets, and where it sends the browser.
func (b *bundle) begin(to string) (cookie string, target *url.URL) {
	b.t.Helper()
	a := b.do("GET", "/console/oidc?to="+url.QueryEscape(to),
		headers{"Sec-Fetch-Site": "same-origin"})
	require.Equal(b.t, 303, a.status, "%s", a.body)
	require.NotNil(b.t, a.cookies[loginCookie])
	target, err := url.Parse(a.header.Get("Location"))
	require.NoError(b.t, err)
	return loginCookie + "=" + a.cookies[loginCookie].Value, target
}

// atIssuer follows the browser through the issuer, and returns the path and query that it comes
// back to.
func (b *bundle) atIssuer(target *url.URL) string {
	b.t.Helper()
	resp, err := plain.Get(target.String())
	require.NoError(b.t, err)
	resp.Body.Close()
	require.Equal(b.t, 302, resp.StatusCode)
	back, err := url.Parse(resp.Header.Get("Location"))
	require.NoError(b.t, err)
	require.Equal(b.t, b.url+"/console/oidc/callback", back.Scheme+"://"+back.Host+back.Path)
	return back.RequestURI()
}

// fromElsewhere are the headers of a navigation that the issuer caused.
var fromElsewhere = headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
