package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// The settings of the console reach it.
func TestConsoleSettings(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t, prepareDatabase)
	p := startNode(t, database, "--instance-name=staging", "--instance-color=#c0ffee",
		"--trace-url=https://tempo.example.com/trace/{trace_id}",
		"--oidc-issuer=https://login.example.com", "--oidc-client-id=console",
		"--public-url=https://tasks.example.com")
	resp, err := http.Get(p.url + "/console/session")
	require.NoError(t, err)
	defer resp.Body.Close()
	var s struct {
		Instance struct{ Name, Color string }
		Login    struct{ OIDC bool }
		Dev      bool
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	assert.Equal(t, "staging", s.Instance.Name)
	assert.Equal(t, "#c0ffee", s.Instance.Color)
	assert.True(t, s.Login.OIDC)
	assert.False(t, s.Dev)
	assert.Equal(t, 200, p.status("", "/console/tasks"))

	p = startNode(t, database, "--no-console")
	assert.Equal(t, 404, p.status("", "/console"))
	assert.Equal(t, 404, p.status("", "/console/session"))
}

// A login goes to the issuer of the settings, and is to come back to the public URL.
func TestConsoleLoginSettings(t *testing.T) {
	t.Parallel()
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer.URL,
			"authorization_endpoint": issuer.URL + "/authorize",
			"token_endpoint":         issuer.URL + "/token", "jwks_uri": issuer.URL + "/keys"})
	}))
	defer issuer.Close()
	p := startNode(t, pgtest.Database(t, prepareDatabase), "--oidc-issuer="+issuer.URL,
		"--oidc-client-id=console", "--oidc-scopes=profile email,tasks",
		"--public-url=https://tasks.example.com/")
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := browser.Get(p.url + "/console/oidc")
	require.NoError(t, err)
	resp.Body.Close()
	target, err := url.Parse(resp.Header.Get("Location"))
	require.NoError(t, err)
	assert.Equal(t, issuer.URL+"/authorize", target.Scheme+"://"+target.Host+target.Path)
	assert.Equal(t, "console", target.Query().Get("client_id"))
	assert.Equal(t, "openid profile email tasks", target.Query().Get("scope"))
	assert.Equal(t, "https://tasks.example.com/console/oidc/callback",
		target.Query().Get("redirect_uri"))
}

// Settings that can't work are refused, by their names.
func TestConsoleSettingsRefused(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x",
		"ASYNCFLOW_SECRET":     "0123456789abcdef0123456789abcdef",
		"ASYNCFLOW_JWT_SECRET": "0123456789abcdef0123456789abcdef"}
	for flag, args := range map[string][]string{
		"--instance-color": {"--instance-color=red"},
		"--instance-name":  {"--instance-name=a\tb"},
		"--trace-url":      {"--trace-url=https://tempo.example.com/trace"},
		"--oidc-issuer":    {"--oidc-issuer=http://login.example.com", "--oidc-client-id=x"},
		"--oidc-client-id": {"--oidc-issuer=https://login.example.com"},
		"--oidc-token":     {"--oidc-token=refresh"},
		"--public-url":     {"--oidc-issuer=https://login.example.com", "--oidc-client-id=x"},
	} {
		t.Run(flag, func(t *testing.T) {
			r := runCLI(t, env, append([]string{"serve"}, args...)...)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, flag)
		})
	}
}
