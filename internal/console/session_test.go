package console_test

import (
	"encoding/base64"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/console"
)

const types = "/v1/task-types"

// A login turns a token into a cookie that scripts can't read, and calls of the API then need no
// Authorization. A logout ends that.
func TestSession(t *testing.T) {
	b := setup(t, func(cfg *console.Config) {
		cfg.Instance = console.Instance{Name: "staging", Color: "#c0ffee"}
	})
	out := b.session(nil)
	assert.False(t, out.LoggedIn)
	assert.Empty(t, out.Kind)
	assert.Equal(t, "staging", out.Instance.Name)
	assert.Equal(t, "#c0ffee", out.Instance.Color)
	assert.Equal(t, "test", out.Version)
	assert.True(t, out.Login.Token)
	assert.False(t, out.Login.OIDC)
	assert.False(t, out.Dev)
	assert.Equal(t, 401, b.do("GET", types, own).status)

	a := b.do("POST", "/console/login", own.with("Authorization", "Bearer "+b.token))
	require.Equal(t, 200, a.status, "%s", a.body)
	assert.Equal(t, "no-store", a.header.Get("Cache-Control"))
	assert.NotContains(t, string(a.body), b.token)
	cookie := a.cookies[sessionCookie]
	require.NotNil(t, cookie)
	assert.True(t, cookie.HttpOnly)
	assert.True(t, cookie.Secure)
	assert.Equal(t, http.SameSiteLaxMode, cookie.SameSite)
	assert.Equal(t, "/", cookie.Path)
	assert.Empty(t, cookie.Domain)
	assert.InDelta(t, 3600, cookie.MaxAge, 30)
	assert.NotContains(t, cookie.Value, strings.Split(b.token, ".")[1], "it is encrypted")

	h := own.with("Cookie", sessionCookie+"="+cookie.Value)
	in := b.session(h)
	assert.True(t, in.LoggedIn)
	assert.Equal(t, "tenant", in.Kind)
	assert.Equal(t, "acme", in.Tenant)
	assert.Equal(t, "ann", in.Subject)
	assert.Equal(t, []string{"submit", "read", "operate", "manage"}, in.Scopes)
	assert.WithinDuration(t, time.Now().Add(time.Hour), in.ExpiresAt, time.Minute)

	got := b.do("GET", types, h.with("Asyncflow-Session", in.ID))
	require.Equal(t, 200, got.status, "%s", got.body)
	other := b.do("GET", types, h.with("Asyncflow-Session", "another"))
	assert.Equal(t, 403, other.status, "the page was loaded in another caller's session")
	assert.Contains(t, other.problem.Detail, "load the page again")
	assert.Equal(t, "no-store", got.header.Get("Cache-Control"))
	assert.Equal(t, 403, b.do("GET", "/v1/tenants", h).status, "the token's scopes count")

	a = b.do("POST", "/console/logout", h)
	require.Equal(t, 204, a.status)
	cookie = a.cookies[sessionCookie]
	require.NotNil(t, cookie)
	assert.Empty(t, cookie.Value)
	assert.True(t, cookie.Expires.Before(time.Now()) && !cookie.Expires.IsZero())
	assert.True(t, cookie.Secure, "else the browser keeps the one with the prefix __Host-")
}

// An operator gets sessions too.
func TestOperatorsSession(t *testing.T) {
	b := setup(t)
	token, err := b.issuer.IssueAdmin("root", time.Hour, time.Now())
	require.NoError(t, err)
	h := own.with("Cookie", b.login(token))
	s := b.session(h)
	assert.Equal(t, "operator", s.Kind)
	assert.Empty(t, s.Tenant)
	assert.Equal(t, []string{"admin"}, s.Scopes)
	assert.Equal(t, 200, b.do("GET", "/v1/tenants", h).status)
}

// Authorization counts more than a session, even if it is wrong.
func TestAuthorizationBeforeSession(t *testing.T) {
	b := setup(t)
	h := own.with("Cookie", b.login(b.token))
	assert.Equal(t, 401, b.do("GET", types, h.with("Authorization", "Bearer x")).status)
	assert.Equal(t, 401, b.do("GET", types, h.with("Authorization", "Basic eDp5")).status)
	token, err := b.issuer.IssueAdmin("root", time.Hour, time.Now())
	require.NoError(t, err)
	elsewhere := headers{"Sec-Fetch-Site": "cross-site", "Cookie": h["Cookie"]}
	assert.Equal(t, 200,
		b.do("GET", "/v1/tenants", elsewhere.with("Authorization", "Bearer "+token)).status)
	// a worker's report carries a token of its own kind
	report := b.do("POST", "/v1/callbacks/pipe.1.1/complete", h)
	assert.Equal(t, 401, report.status)
	assert.Contains(t, report.problem.Detail, "no token")
}

// A refused login sets no cookie.
func TestRefusedLogin(t *testing.T) {
	b := setup(t)
	for name, token := range map[string]string{"none": "", "malformed": "Bearer abc",
		"another's": "Bearer " + b.token[:len(b.token)-5] + "AAAAA"} {
		a := b.do("POST", "/console/login", own.with("Authorization", token))
		assert.Equal(t, 401, a.status, name)
		assert.Equal(t, "unauthenticated", string(a.problem.Code), name)
		assert.NotEmpty(t, a.problem.RequestID)
		assert.Empty(t, a.cookies, name)
	}
	req, err := http.NewRequest("POST", b.url+"/console/login", strings.NewReader("{}"))
	require.NoError(t, err)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Authorization", "Bearer "+b.token)
	resp, err := plain.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 400, resp.StatusCode, "a body")
	assert.Empty(t, resp.Cookies())
}

// signed returns a token of the bundle's issuer with more or other claims than it would issue.
func signed(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := jwt.MapClaims{"iss": "asyncflow", "aud": "asyncflow", "tenant": "acme", "scope": "read",
		"exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, all)
	token.Header["typ"] = "at+jwt"
	text, err := token.SignedString(secret("s"))
	require.NoError(t, err)
	return text
}

// The longest token makes a cookie that browsers still keep. One byte more is refused.
func TestTokenTooLongForACookie(t *testing.T) {
	b := setup(t)
	sized := func(size int) string {
		for n := range size {
			if token := signed(t, map[string]any{"groups": strings.Repeat("x",
				n)}); len(token) >= size {
				return token
			}
		}
		return ""
	}
	fits := sized(console.MaxToken - 1)
	require.LessOrEqual(t, len(fits), console.MaxToken)
	a := b.do("POST", "/console/login", own.with("Authorization", "Bearer "+fits))
	require.Equal(t, 200, a.status, "%s", a.body)
	assert.LessOrEqual(t, len(a.header.Get("Set-Cookie")), 4096)
	assert.Greater(t, len(a.header.Get("Set-Cookie")), 4070, "the limit is not lower than needed")
	h := own.with("Cookie", sessionCookie+"="+a.cookies[sessionCookie].Value)
	assert.Equal(t, 200, b.do("GET", types, h).status)

	a = b.do("POST", "/console/login",
		own.with("Authorization", "Bearer "+sized(console.MaxToken+1)))
	assert.Equal(t, 413, a.status)
	require.Len(t, a.problem.Errors, 1)
	assert.Equal(t, "token", a.problem.Errors[0].Field)
	assert.Contains(t, a.problem.Errors[0].Message, "4096")
	assert.Empty(t, a.cookies)
}

// A session ends with its token, whatever the browser keeps.
func TestExpiredSession(t *testing.T) {
	b := setup(t)
	cfg := authConfig()
	cfg.Leeway = 0
	strict, err := auth.NewVerifier(cfg)
	require.NoError(t, err)
	b.serve(func(c *console.Config) { c.Verifier = strict })
	h := own.with("Cookie", b.login(b.newToken(5*time.Second)))
	require.True(t, b.session(h).LoggedIn)
	var a answer
	require.Eventually(t, func() bool {
		a = b.do("GET", types, h)
		return a.status != 200
	}, patience, 100*time.Millisecond)
	assert.Equal(t, 401, a.status)
	assert.Contains(t, a.problem.Detail, "expired")
	assert.False(t, b.session(h).LoggedIn)
}

// A session ends when its token is revoked. Sessions of other tokens go on.
func TestRevokedSession(t *testing.T) {
	b := setup(t)
	verifier, err := auth.NewVerifier(authConfig())
	require.NoError(t, err)
	b.serve(func(c *console.Config) { c.Verifier = verifier })
	token := b.newToken(time.Hour)
	h, other := own.with("Cookie", b.login(token)), own.with("Cookie", b.login(b.token))
	require.Equal(t, 200, b.do("GET", types, h).status)
	d, err := auth.Describe(token)
	require.NoError(t, err)
	verifier.Revoke([]auth.TokenName{d.TokenName})
	a := b.do("GET", types, h)
	assert.Equal(t, []any{401, "the token was revoked"}, []any{a.status, a.problem.Detail})
	assert.False(t, b.session(h).LoggedIn)
	login := b.do("POST", "/console/login", own.with("Authorization", "Bearer "+token))
	assert.Equal(t, 401, login.status)
	assert.Empty(t, login.cookies)
	assert.Equal(t, 200, b.do("GET", types, other).status)
}

// A token that just expired still counts, since clocks differ; so does its session.
func TestSessionWithinTheLeeway(t *testing.T) {
	b := setup(t)
	claims := map[string]any{"exp": time.Now().Add(-2 * time.Second).Unix()}
	b.serve(func(cfg *console.Config) {
		lenient := authConfig()
		lenient.Leeway = auth.MaxLeeway
		var err error
		cfg.Verifier, err = auth.NewVerifier(lenient)
		require.NoError(t, err)
	})
	a := b.do("POST", "/console/login", own.with("Authorization", "Bearer "+signed(t, claims)))
	require.Equal(t, 200, a.status, "%s", a.body)
	require.NotNil(t, a.cookies[sessionCookie])
	assert.Equal(t, 1, a.cookies[sessionCookie].MaxAge)
	assert.NotEmpty(t, a.cookies[sessionCookie].Value)
}

// A cookie that no node sealed opens nothing.
func TestForgedCookie(t *testing.T) {
	b := setup(t)
	good := strings.TrimPrefix(b.login(b.token), sessionCookie+"=")
	raw, err := base64.RawURLEncoding.DecodeString(good)
	require.NoError(t, err)
	raw[len(raw)/2] ^= 1
	for name, value := range map[string]string{
		"changed":   base64.RawURLEncoding.EncodeToString(raw),
		"truncated": good[:len(good)-4],
		"short":     "AAAA",
		"longer":    good + "AAAA",
		"no base64": "%%%",
		"the token": b.token,
		"padded":    good + "=",
	} {
		h := own.with("Cookie", sessionCookie+"="+value)
		a := b.do("GET", types, h)
		assert.Equal(t, 401, a.status, name)
		assert.Contains(t, a.problem.Detail, "can't be opened", name)
		assert.False(t, b.session(h).LoggedIn, name)
	}
}

// All nodes that share a secret accept a session, also while the secret is being changed.
func TestSessionsOfSeveralNodes(t *testing.T) {
	b := setup(t)
	h := own.with("Cookie", b.login(b.token))
	b.serve()
	assert.Equal(t, 200, b.do("GET", types, h).status, "another node")

	b.serve(func(cfg *console.Config) {
		cfg.Secret, cfg.OldSecrets = secret("n"), [][]byte{secret("k")}
	})
	assert.Equal(t, 200, b.do("GET", types, h).status, "a node with a new secret")
	renewed := own.with("Cookie", b.login(b.token))

	b.serve(func(cfg *console.Config) { cfg.Secret = secret("n") })
	assert.Equal(t, 401, b.do("GET", types, h).status, "a node that has forgotten the old secret")
	assert.Equal(t, 200, b.do("GET", types, renewed).status, "the new secret seals")
}
