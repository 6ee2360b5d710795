package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// replace replaces a file atomically, as the documentation tells operators.
func replace(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(name+".new", name))
}

// tokenFor creates a tenant's token with the secrets of a file.
func tokenFor(t *testing.T, secrets, issuer string) string {
	t.Helper()
	r := runCLI(t, map[string]string{"ASYNCFLOW_JWT_SECRET_FILE": secrets,
		"ASYNCFLOW_JWT_ISSUER": issuer}, "token", "create", "--tenant", testTenant)
	require.Zero(t, r.code, r.stderr)
	return strings.TrimSpace(r.stdout)
}

// A running node follows changes of its own issuer's secrets and of its issuers file. A broken
// file is reported, and changes nothing.
func TestTrustChangesUnderARunningNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, theirs, issuers := filepath.Join(dir, "ours"), filepath.Join(dir,
		"theirs"), filepath.Join(dir, "issuers.yaml")
	old, next := strings.Repeat("old.", 8), strings.Repeat("next", 8)
	replace(t, ours, old+"\n")
	replace(t, theirs, strings.Repeat("them", 8)+"\n")
	const other = "{issuer: other, audience: asyncflow, secret_file: theirs}"
	replace(t, issuers, "issuers: ["+other+"]")
	p := start(t, []string{"DATABASE_URL=" + database(t), "ASYNCFLOW_SECRET=" + testSecret,
		"ASYNCFLOW_LISTEN=127.0.0.1:0",
		"ASYNCFLOW_JWT_SECRET_FILE=" + ours, "ASYNCFLOW_JWT_ISSUERS_FILE=" + issuers}, "serve",
		"--metrics=open")
	require.NotEmpty(t, p.url, p.said())
	const path = "/v1/task-types"
	becomes := func(status int, token string) {
		t.Helper()
		require.Eventually(t, func() bool { return p.status(token, path) == status }, patience,
			50*time.Millisecond)
	}
	stale := func(series string) bool {
		_, text := get(t, p.url+"/metrics")
		require.Contains(t, text, series)
		return strings.Contains(text, series+" 1\n")
	}
	before := tokenFor(t, ours, "asyncflow")
	require.Equal(t, 200, p.status(before, path))
	require.Equal(t, 200, p.status(tokenFor(t, theirs, "other"), path))

	replace(t, ours, next+"\n"+old+"\n")
	after := tokenFor(t, ours, "asyncflow")
	becomes(200, after)
	require.Equal(t, 200, p.status(before, path))
	replace(t, ours, next+"\n")
	becomes(401, before)
	require.Equal(t, 200, p.status(after, path))

	third := tokenFor(t, theirs, "third")
	require.Equal(t, 401, p.status(third, path))
	replace(t, issuers,
		"issuers: ["+other+", {issuer: third, audience: asyncflow, secret_file: theirs}]")
	becomes(200, third)
	require.False(t, stale("asyncflow_issuers_file_stale"))
	replace(t, issuers, "issuers: ["+other+", {issuer: fourth}]")
	require.NoError(t, os.Remove(theirs))
	require.Eventually(t, func() bool {
		return stale("asyncflow_issuers_file_stale") &&
			stale(`asyncflow_token_keys_stale{issuer="other"}`)
	}, patience, 50*time.Millisecond)
	require.False(t, stale(`asyncflow_token_keys_stale{issuer="asyncflow"}`))
	require.Equal(t, 200, p.status(third, path))
	require.Equal(t, 200, p.status("", "/readyz"))
	require.Contains(t, p.said(), "issuers[1].audience must not be empty")
	replace(t, issuers, "issuers: [{issuer: third, audience: asyncflow, secret: '"+
		strings.Repeat("them", 8)+"'}]")
	becomes(401, tokenForgotten(t, dir))
	require.Equal(t, 200, p.status(third, path))
}

// tokenForgotten creates a token of the removed issuer.
func tokenForgotten(t *testing.T, dir string) string {
	file := filepath.Join(dir, "forgotten")
	replace(t, file, strings.Repeat("them", 8))
	return tokenFor(t, file, "other")
}

// The same error of an issuers file is logged once, and so is its end.
func TestIssuersWatchSaysItOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "issuers.yaml")
	const good = "issuers: [{issuer: a, audience: b, secret: '${SECRET}'}]"
	replace(t, file, good)
	flags := jwtFlags{JWTIssuersFile: file}
	env := func(name string) (string, bool) { return testJWTSecret, name == "SECRET" }
	tokens, err := flags.verifier(env)
	require.NoError(t, err)
	var said strings.Builder
	w := &issuersWatch{flags: flags, env: env, tokens: tokens,
		log: slog.New(slog.NewTextHandler(&said, nil))}
	look := func() string {
		said.Reset()
		w.runOnce()
		return said.String()
	}
	require.Empty(t, look())
	replace(t, file, "issuers: [{issuer: a, audience: b, secret: short}]")
	require.Contains(t, look(), "issuers[0].secret must have at least 32 bytes")
	require.Empty(t, look())
	require.True(t, w.Stale())
	replace(t, file, "issuers: []")
	require.Contains(t, look(), "issuers must have at least one")
	replace(t, file, good)
	require.Contains(t, look(), "can be used again")
	require.False(t, w.Stale())
	replace(t, file, strings.Replace(good, "issuer: a", "issuer: c", 1))
	require.Contains(t, look(), "have changed")
	require.Empty(t, look())
}
