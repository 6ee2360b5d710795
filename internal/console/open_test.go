package console_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/console"
)

// open is setup with a console that is open to this machine.
func open(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.serve(func(cfg *console.Config) { cfg.Open = b.token })
	return b
}

// A developer's console opens logged in, but to pages of this machine only: a name elsewhere that
// leads here (DNS rebinding) doesn't count, nor does a page from elsewhere.
func TestOpenConsole(t *testing.T) {
	b := open(t)
	port := b.host[strings.LastIndex(b.host, ":"):]
	for host, ok := range map[string]bool{
		b.host:                        true,
		"localhost" + port:            true,
		"LOCALHOST":                   true,
		"[::1]" + port:                true,
		"[::1]":                       true,
		"127.0.0.1":                   true,
		"elsewhere.example" + port:    false,
		"localhost.elsewhere.example": false,
		"127.0.0.1.elsewhere.example": false,
		"localhost.":                  false,
		"0.0.0.0":                     false,
		"[::]":                        false,
		"192.168.0.1" + port:          false,
	} {
		t.Run(host, func(t *testing.T) {
			h := own.with("Host", host)
			status := 401
			if ok {
				status = 200
			}
			assert.Equal(t, status, b.do("GET", types, h).status, host)
			s := b.session(h)
			assert.Equal(t, ok, s.LoggedIn, host)
			assert.True(t, s.Dev)
		})
	}
	for _, h := range []headers{{}, {"Sec-Fetch-Site": "cross-site"},
		{"Sec-Fetch-Site": "same-site"},
		{"Origin": "http://elsewhere.example"}} {
		assert.Equal(t, 401, b.do("GET", types, h).status, "%v", h)
		assert.False(t, b.session(h).LoggedIn, "%v", h)
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Forwarded",
		"Via"} {
		for _, value := range []string{"192.0.2.1", ""} { // a proxy may add a second one
			h := own.with(name, value)
			assert.Equal(t, 401, b.do("GET", types, h).status, "a proxy on this machine: %s", name)
			assert.False(t, b.session(h).LoggedIn, name)
		}
	}
	assert.Equal(t, 401, b.do("GET", types, own.with("Authorization", "Bearer x")).status)
}

// A developer who logged in by a token of few scopes doesn't get all of them when it expires.
func TestLoginToAnOpenConsoleExpires(t *testing.T) {
	b := open(t)
	a := b.do("POST", "/console/login", own.with("Authorization", "Bearer "+b.token))
	require.Equal(t, 200, a.status)
	cookie := a.cookies[sessionCookie]
	require.NotNil(t, cookie)
	assert.Zero(t, cookie.MaxAge, "a browser that drops the cookie has the open console's token")
	assert.True(t, cookie.Expires.IsZero())
}

// A developer who logs out stays logged out, and can log in again by a token.
func TestLogoutOfAnOpenConsole(t *testing.T) {
	b := open(t)
	require.True(t, b.session(own).LoggedIn)
	a := b.do("POST", "/console/logout", own)
	require.Equal(t, 204, a.status)
	cookie := a.cookies[sessionCookie]
	require.NotNil(t, cookie)
	h := own.with("Cookie", sessionCookie+"="+cookie.Value)
	assert.False(t, b.session(h).LoggedIn)
	call := b.do("GET", types, h)
	assert.Equal(t, 401, call.status)
	assert.Contains(t, call.problem.Detail, "no token", "nothing is wrong with the cookie")
	h = own.with("Cookie", b.login(b.token))
	assert.True(t, b.session(h).LoggedIn)

	b.serve() // a console that isn't open takes that cookie for none
	h = own.with("Cookie", sessionCookie+"="+cookie.Value)
	assert.False(t, b.session(h).LoggedIn)
	assert.Equal(t, 401, b.do("GET", types, h).status)
}
