package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/console"
)

// A login at the issuer ends with a session, at the page where it began.
func TestOIDC(t *testing.T) {
	b, i := setupOIDC(t)
	assert.Zero(t, i.count("/.well-known/openid-configuration"), "a node starts without its issuer")
	assert.True(t, b.session(nil).Login.OIDC)
	cookie, target := b.begin("/console/tasks?type=images&limit=5")
	q := target.Query()
	assert.Equal(t, "code", q.Get("response_type"))
	assert.Equal(t, "openid", q.Get("scope"))
	assert.Equal(t, "S256", q.Get("code_challenge_method"))
	assert.NotEmpty(t, q.Get("nonce"))
	assert.Equal(t, b.url+"/console/oidc/callback", q.Get("redirect_uri"))

	a := b.do("GET", b.atIssuer(target), fromElsewhere.with("Cookie", cookie))
	require.Equal(t, 303, a.status, "%s", a.body)
	assert.Equal(t, "/console/tasks?type=images&limit=5", a.header.Get("Location"))
	assert.Empty(t, a.cookies[loginCookie].Value)
	session := a.cookies[sessionCookie]
	require.NotNil(t, session)
	h := own.with("Cookie", sessionCookie+"="+session.Value)
	assert.Equal(t, "ann", b.session(h).Subject)
	assert.Equal(t, 200, b.do("GET", types, h).status)

	b.begin("/console")
	assert.Equal(t, 1, i.count("/.well-known/openid-configuration"), "it is kept")
}

// Login and end may meet two nodes. The client may use a secret, and the access token may be the
// session.
func TestOIDCVariants(t *testing.T) {
	b := setup(t)
	i := startIssuer(t)
	i.secret = "a secret of the client"
	configure := func(cfg *console.Config) {
		cfg.OIDC.ClientSecret, cfg.OIDC.Token = i.secret, console.TokenAccess
		cfg.OIDC.Scopes = []string{"profile", "tasks"}
		cfg.Verifier = i.verifier("at+jwt", "asyncflow")
	}
	b.serveOIDC(i, configure)
	cookie, target := b.begin("/console")
	assert.Equal(t, "openid profile tasks", target.Query().Get("scope"))
	path, first := b.atIssuer(target), b.url
	b.serveOIDC(i, configure, func(cfg *console.Config) { cfg.PublicURL = first })
	a := b.do("GET", path, fromElsewhere.with("Cookie", cookie))
	require.Equal(t, 303, a.status, "%s", a.body)
	assert.Equal(t, "/console", a.header.Get("Location"))
	h := own.with("Cookie", sessionCookie+"="+a.cookies[sessionCookie].Value)
	assert.Equal(t, "ann-by-access", b.session(h).Subject)
}

// refused checks that an answer is a page that says why there is no session.
func refused(t *testing.T, a answer, status int, why string) {
	t.Helper()
	assert.Equal(t, status, a.status, "%s", a.body)
	assert.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	assert.NotEmpty(t, a.header.Get("Content-Security-Policy"))
	assert.Contains(t, string(a.body), why)
	assert.Nil(t, a.cookies[sessionCookie])
	assert.Empty(t, a.header.Get("Location"))
}

// An answer of the issuer counts only in the browser that began the login, once, and in time.
func TestOIDCAnswersOfOthers(t *testing.T) {
	var clock later
	b, i := setupOIDC(t, clock.set)
	cookie, target := b.begin("/console")
	path := b.atIssuer(target)
	h := fromElsewhere.with("Cookie", cookie)
	state := target.Query().Get("state")

	refused(t, b.do("GET", path, fromElsewhere), 400, "not begun in this browser")
	refused(t, b.do("GET", path, fromElsewhere.with("Cookie", cookie[:len(cookie)-4])), 400,
		"not begun in this browser")
	session := strings.TrimPrefix(b.login(b.token), sessionCookie+"=")
	refused(t, b.do("GET", path, fromElsewhere.with("Cookie", loginCookie+"="+session)), 400,
		"not begun in this browser")
	other, _ := b.begin("/console")
	mixed := b.do("GET", path, fromElsewhere.with("Cookie", other))
	refused(t, mixed, 400, "another login")
	assert.Nil(t, mixed.cookies[loginCookie], "the other login goes on")
	refused(t, b.do("GET", strings.Replace(path, state, "", 1), h), 400, "another login")
	elsewhere := strings.Replace(path, url.QueryEscape(i.URL), "https%3A%2F%2Fx", 1)
	refused(t, b.do("GET", elsewhere, h), 400, "another issuer")
	refused(t, b.do("GET", "/console/oidc/callback?state="+state, h), 400, "code")
	refused(t, b.do("GET", "/console/oidc/callback?error=access_denied&error_description="+
		url.QueryEscape("<b>no</b>")+"&state="+state, h), 400, "&lt;b&gt;no&lt;/b&gt;")
	assert.Zero(t, i.count("/token"), "none of them is worth a request")

	clock.pass(11 * time.Minute)
	refused(t, b.do("GET", path, h), 400, "longer than 10 minutes")
	clock.pass(-11 * time.Minute)
	require.Equal(t, 303, b.do("GET", path, h).status, "all of that left the login as it was")
	refused(t, b.do("GET", path, h), 400, "was used already")
	assert.Equal(t, 1, i.count("/token"))
	a := b.do("GET", "/console/oidc/callback", nil)
	assert.Empty(t, a.cookies[loginCookie].Value)
}

// The cookie of a login is no session, and it is of no use to scripts.
func TestOIDCCookie(t *testing.T) {
	b, _ := setupOIDC(t)
	a := b.do("GET", "/console/oidc", nil)
	c := a.cookies[loginCookie]
	require.NotNil(t, c)
	assert.True(t, c.HttpOnly && c.Secure && c.Path == "/")
	assert.Equal(t, http.SameSiteLaxMode, c.SameSite, "Strict would be lost on the way back")
	assert.Equal(t, 600, c.MaxAge)
	h := own.with("Cookie", sessionCookie+"="+c.Value)
	assert.Equal(t, 401, b.do("GET", types, h).status)
	target, err := url.Parse(a.header.Get("Location"))
	require.NoError(t, err)
	for _, secret := range []string{target.Query().Get("state"), target.Query().Get("nonce")} {
		assert.NotContains(t, c.Value, secret)
	}
}

// The tokens of the issuer are checked: those that others asked for, and those that the API would
// refuse, start no session.
func TestOIDCTokens(t *testing.T) {
	b, i := setupOIDC(t)
	for name, c := range map[string]struct {
		claim  string
		value  any
		status int
		why    string
	}{
		"another nonce":     {"nonce", "other", 502, "another login (claim nonce)"},
		"no nonce":          {"nonce", "", 502, "another login (claim nonce)"},
		"another client's":  {"aud", "other", 502, "makes no sense"},
		"of another client": {"azp", "other", 502, "another client (claim azp)"},
		"of nobody":         {"azp", "", 502, "another client (claim azp)"},
		"of many clients":   {"aud", []string{clientID, "other"}, 502, "has no claim azp"},
		"another issuer's":  {"iss", "https://elsewhere.example", 502, "makes no sense"},
		"expired":           {"exp", time.Now().Add(-time.Hour).Unix(), 502, "makes no sense"},
		"without a tenant":  {"tenant", "", 400, "names no tenant"},
		"too long": {"groups", strings.Repeat("x", console.MaxToken), 400,
			"the limit of a session"},
	} {
		i.with(func() { i.claims = map[string]any{c.claim: c.value} })
		cookie, target := b.begin("/console")
		a := b.do("GET", b.atIssuer(target), fromElsewhere.with("Cookie", cookie))
		t.Log(name)
		refused(t, a, c.status, c.why)
	}
	i.with(func() { i.claims = map[string]any{} })

	b.serve(func(cfg *console.Config) { // the API doesn't trust the issuer
		cfg.OIDC = console.OIDC{Issuer: i.URL, ClientID: clientID}
		cfg.PublicURL = b.url
	})
	cookie, target := b.begin("/console")
	refused(t, b.do("GET", b.atIssuer(target), fromElsewhere.with("Cookie", cookie)), 400,
		"the token")
}

// A login returns to a page of the console only, wherever a link wants to lead its user.
func TestOIDCReturnsToTheConsole(t *testing.T) {
	b, _ := setupOIDC(t)
	for _, to := range []string{"https://elsewhere.example/", "//elsewhere.example/console",
		"/\\elsewhere.example", "\\\\elsewhere.example", "/console\\..\\x", "javascript:alert(1)",
		"/", "/v1/tasks", "/consoles", "/console/../v1/tasks", "/console/%2e%2e/v1/tasks",
		"/console//elsewhere.example", "/console/..//elsewhere.example", "console",
		"https:/console", "https:console/x", "/console@elsewhere.example",
		"@elsewhere.example/console",
		"/console\r\nSet-Cookie: a=b", "/console\t/x", " /console", "/console/oidc",
		"/console/oidc?to=x",
		"http://127.0.0.1/console"} {
		a := b.do("GET", "/console/oidc?to="+url.QueryEscape(to), nil)
		refused(t, a, 400, "must be a path below /console")
		assert.Nil(t, a.cookies[loginCookie], to)
	}
	for _, to := range []string{"/console", "/console/", "/console/tasks/images.1.2",
		"/console?a=//b",
		"/console/types/a%20b?x=%2F", "/console/tasks#top",
		"/console/" + strings.Repeat("x", 1024)} { // too long: it returns to the overview
		a := b.do("GET", "/console/oidc?to="+url.QueryEscape(to), nil)
		assert.Equal(t, 303, a.status, to)
	}
}

// Without an issuer there is no such login.
func TestNoOIDC(t *testing.T) {
	b := setup(t)
	assert.Equal(t, 404, b.do("GET", "/console/oidc", nil).status)
	assert.Equal(t, 404, b.do("GET", "/console/oidc/callback", nil).status)
}
