package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
)

func TestKeysGenerate(t *testing.T) {
	t.Parallel()
	for _, alg := range []string{"EdDSA", "ES256", "RS256"} {
		t.Run(alg, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "jwt.pem")
			r := runCLI(t, nil, "keys", "generate", "--alg", alg, "--kid", "k-"+alg, "--out", file,
				"-o",
				"json")
			require.Zero(t, r.code, r.stderr)
			require.Contains(t, r.stdout, `"kid": "k-`+alg+`"`)
			private, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), private.Mode().Perm())
			public, err := os.ReadFile(file + ".pub")
			require.NoError(t, err)
			require.NotContains(t, string(public)+r.stdout, "PRIVATE")

			before, err := os.ReadFile(file)
			require.NoError(t, err)
			again := runCLI(t, nil, "keys", "generate", "--alg", alg, "--out", file)
			require.Equal(t, exitUsage, again.code, "nothing is overwritten")
			require.NoError(t, os.Remove(file+".pub"))
			again = runCLI(t, nil, "keys", "generate", "--alg", alg, "--out", file)
			require.Equal(t, exitUsage, again.code)
			require.Contains(t, again.stderr, "exists already")
			after, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, before, after)

			set := runCLI(t, nil, "keys", "jwks", file)
			require.Zero(t, set.code, set.stderr)
			var doc struct{ Keys []map[string]any }
			require.NoError(t, json.Unmarshal([]byte(set.stdout), &doc))
			require.Len(t, doc.Keys, 1)
			require.Equal(t, []any{alg, "k-" + alg, "sig", nil},
				[]any{doc.Keys[0]["alg"], doc.Keys[0]["kid"], doc.Keys[0]["use"], doc.Keys[0]["d"]})
			shown := runCLI(t, nil, "keys", "show", file)
			require.Contains(t, shown.stdout, "k-"+alg)
		})
	}
	require.Equal(t, exitUsage, runCLI(t, nil, "keys", "generate", "--alg", "HS256", "--out",
		"x").code)
	require.Equal(t, exitUsage, runCLI(t, nil, "keys", "show", "/does/not/exist").code)
	require.Contains(t, runCLI(t, nil, "keys", "generate", "--help").stdout, "Examples:")
	require.Contains(t, runCLI(t, nil, "keys", "rotate", "--help").stdout,
		"asyncflow keys activate")
}

// Steps must be taken in order, and an interrupted step can be repeated.
func TestKeysRotateSteps(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jwt.pem")
	run := func(args ...string) ran { return runCLI(t, nil, append([]string{"keys"}, args...)...) }
	count := func() int {
		keys, err := readKeys(file + ".pub")
		require.NoError(t, err)
		return len(keys.List())
	}
	require.Equal(t, exitUsage, run("rotate", file).code, "there is no key")
	require.Zero(t, run("generate", "--out", file).code)
	require.Contains(t, run("activate", file).stderr, "begin with asyncflow keys rotate")
	require.Zero(t, run("retire", file).code, "nothing to do")
	require.Equal(t, 1, count())

	one, err := os.ReadFile(file + ".pub")
	require.NoError(t, err)
	require.Zero(t, run("rotate", file).code)
	require.Equal(t, 2, count())
	require.Equal(t, exitFailed, run("rotate", file).code, "one is waiting")
	require.Contains(t, run("retire", file).stderr, "is waiting")
	next, err := readKeys(file + ".next")
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(file+".pub", one, 0o644)) // as if it had been interrupted
	require.Contains(t, run("activate", file).stderr, "doesn't have the next key")
	require.Zero(t, run("rotate", file).code)
	require.Equal(t, 2, count())
	require.Zero(t, run("activate", file).code)
	current, err := readKeys(file)
	require.NoError(t, err)
	require.Equal(t, next.List(), current.List())
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoFileExists(t, file+".next")
	require.Zero(t, run("retire", file).code)
	require.Equal(t, 1, count())

	require.Zero(t, run("rotate", "--kid", "named", file).code)
	require.Zero(t, run("activate", file).code)
	require.Equal(t, exitUsage, run("rotate", "--kid", "named", file).code, "the id is taken")
	require.NoFileExists(t, file+".next")
	require.NoError(t, os.WriteFile(file+".pub", one, 0o644))
	require.Contains(t, run("rotate", file).stderr, "don't belong together")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{file, file + ".pub"}, left)
}

// signed creates a token with the command line and the private key in a file.
func signed(t *testing.T, file string, args ...string) string {
	t.Helper()
	r := runCLI(t, map[string]string{"ASYNCFLOW_JWT_PRIVATE_KEY_FILE": file,
		"ASYNCFLOW_URL": defaultURL}, append([]string{"token", "create"}, args...)...)
	require.Zero(t, r.code, r.stderr)
	return strings.TrimSpace(r.stdout)
}

// status calls a node with a token and returns the status of the answer.
func (p *process) status(token, path string) int {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, nil)
	require.NoError(p.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// A running node follows a rotation of keys: it refuses no token on the way, and in the end those
// of the old key, even one that it verified before.
func TestKeysRotateUnderARunningNode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jwt.pem")
	run := func(args ...string) {
		r := runCLI(t, nil, append([]string{"keys"}, args...)...)
		require.Zero(t, r.code, r.stderr)
	}
	run("generate", "--alg", "ES256", "--out", file)
	env := []string{"DATABASE_URL=" + database(t), "ASYNCFLOW_SECRET=" + testSecret,
		"ASYNCFLOW_LISTEN=127.0.0.1:0", "ASYNCFLOW_JWT_PUBLIC_KEYS_FILE=" + file + ".pub"}
	p := start(t, env, "serve")
	require.NotEmpty(t, p.url, p.said())
	const path = "/v1/task-types"
	before := signed(t, file, "--tenant", testTenant)
	require.Equal(t, 200, p.status(before, path))
	run("rotate", file)
	next, err := readKeys(file + ".next")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(p.said(), next.List()[0].ID) },
		patience, 20*time.Millisecond, "the node says when it has it")
	require.Equal(t, 200, p.status(signed(t, file, "--tenant", testTenant), path))
	run("activate", file)
	after := signed(t, file, "--tenant", testTenant)
	require.Equal(t, 200, p.status(after, path))
	require.Equal(t, 200, p.status(before, path))
	run("retire", file)
	require.Eventually(t, func() bool { return p.status(before, path) == 401 }, patience,
		50*time.Millisecond)
	require.Equal(t, 200, p.status(after, path))
}

// A node knows several issuers: its own with a secret, another one with a key set, and a third that
// can't be reached.
func TestSeveralIssuers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "foreign.pem")
	require.Zero(t, runCLI(t, nil, "keys", "generate", "--out", file).code)
	set := runCLI(t, nil, "keys", "jwks", file).stdout
	var reachable atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" && !reachable.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte(set))
	}))
	t.Cleanup(server.Close)
	issuers := filepath.Join(dir, "issuers.yaml")
	require.NoError(t, os.WriteFile(issuers, []byte(`
issuers:
  - issuer: https://login.example
    audience: tasks
    algorithm: EdDSA
    jwks_url: ${KEYS}/jwks
    allow_http: true
    scopes: {"asyncflow": [submit, read]}
    tenants: [acme]
  - issuer: https://late.example
    audience: tasks
    algorithm: EdDSA
    jwks_url: ${KEYS}/late
    allow_http: true
    refresh: 1s
`), 0o600))
	p := start(t, append(nodeEnv(database(t)), "ASYNCFLOW_JWT_ISSUERS_FILE="+issuers,
		"KEYS="+server.URL), "serve")
	require.NotEmpty(t, p.url, "it starts all the same: "+p.said())
	c, err := client.New(p.url, "", client.WithRetries(0))
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the keys of the other one come soon
		_, err = c.Ready(t.Context())
		require.ErrorContains(t, err, "https://late.example")
		return !strings.Contains(err.Error(), "https://login.example")
	}, patience, 10*time.Millisecond)
	reachable.Store(true)
	require.Eventually(t, func() bool { return p.status("", "/readyz") == 200 }, patience,
		50*time.Millisecond)

	private, err := os.ReadFile(file)
	require.NoError(t, err)
	cfg := auth.DefaultConfig()
	cfg.Issuer, cfg.Audience, cfg.PrivateKey = "https://login.example", "tasks", private
	foreign, err := auth.NewIssuer(cfg)
	require.NoError(t, err)
	token, err := foreign.Issue(testTenant, "x", []auth.Scope{auth.ScopeRead}, time.Hour,
		time.Now())
	require.NoError(t, err)
	require.Equal(t, 403, p.status(token, "/v1/task-types"), "its scopes are others")
	require.Equal(t, 200, p.status(tokenOf(t, testTenant), "/v1/task-types"))
	token, err = foreign.Issue("beta", "x", nil, time.Hour, time.Now())
	require.NoError(t, err)
	require.Equal(t, 401, p.status(token, "/v1/task-types"), "it doesn't speak for that tenant")
	token, err = foreign.IssueAdmin("x", time.Hour, time.Now())
	require.NoError(t, err)
	require.Equal(t, 401, p.status(token, "/v1/governance"), "it makes no operators' tokens")

	env := map[string]string{"ASYNCFLOW_JWT_SECRET": testJWTSecret, "ASYNCFLOW_URL": defaultURL}
	r := runCLI(t, env, "token", "create", "--admin", "--subject", "alice")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, 200, p.status(strings.TrimSpace(r.stdout), "/v1/governance"))
	require.Equal(t, 403, p.status(strings.TrimSpace(r.stdout), "/v1/task-types"))
	require.Equal(t, 403, p.status(tokenOf(t, testTenant), "/v1/governance"))
}

func TestIssuersFileRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.Zero(t, runCLI(t, nil, "keys", "generate", "--out", filepath.Join(dir, "k.pem")).code)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(testJWTSecret+"\n"),
		0o600))
	file := filepath.Join(dir, "issuers.yaml")
	check := func(t *testing.T, text string) error {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := jwtFlags{JWTIssuersFile: file}.verifier(func(name string) (string,
			bool) {
			return testJWTSecret, name == "SECRET"
		})
		return err
	}
	const good = "issuers:\n  - {issuer: a, audience: b, public_keys_file: k.pem.pub}\n"
	for _, text := range []string{
		good, `{"issuers": [{"issuer": "a", "audience": "b", "secret": "${SECRET}"}]}`,
		"issuers: [{issuer: a, audience: b, secret_file: secret, tenant_claim: [org, slug], " +
			"scopes: {a: read}, admin_type: x+jwt, type: JWT}]",
		good + "  - {issuer: c, audience: b, jwks_url: https://login.example/jwks, algorithm: " +
			"RS256, refresh: 10m, tenants: [acme]}\n",
	} {
		require.NoError(t, check(t, text), text)
	}
	for _, tc := range []struct{ text, want string }{
		{"", "it is empty: it should have issuers"},
		{"issuers: []", "issuers must have at least one"},
		{"a: [", "it is not YAML"},
		{"isuers: []", "isuers is not known here"},
		{good + "    audiense: x", "it is not YAML"},
		{"issuers: [{issuer: a, audience: b, secret: '${SECRET}', audiense: x}]",
			"issuers[0].audiense is not known here"},
		{"issuers: [{audience: b, secret: '${SECRET}'}]", "issuers[0].issuer must not be empty"},
		{"issuers: [{issuer: a, secret: '${SECRET}'}]", "issuers[0].audience must not be empty"},
		{"issuers: [{issuer: a, audience: ' ', secret: '${SECRET}'}]",
			"issuers[0].audience must not be empty"},
		{"issuers: [{issuer: a, audience: b}]", "there is no key to verify with"},
		{"issuers: [{issuer: a, audience: b, secret: '${NOPE}'}]", "NOPE, which is not set"},
		{"issuers: [{issuer: a, audience: b, secret: short}]",
			"issuers[0].secret must have at least 32 bytes"},
		{"issuers: [{issuer: a, audience: b, secret: '${SECRET}', secret_file: secret}]",
			"issuers[0].secret_file must not be set beside a secret"},
		{"issuers: [{issuer: a, audience: b, secret_file: nope}]",
			"issuers[0].secret_file can't be used: stat"},
		{"issuers: [{issuer: a, audience: b, public_keys_file: nope}]",
			"issuers[0].public_keys_file can't be used"},
		{"issuers: [{issuer: a, audience: b, public_keys_file: k.pem}]",
			"issuers[0].public_keys_file can't be used"},
		{"issuers: [{issuer: a, audience: b, public_keys_file: k.pem.pub, algorithm: RS256}]",
			"issuers[0].public_keys_file can't be used: the keys are for EdDSA"},
		{"issuers: [{issuer: a, audience: b, public_keys_file: k.pem.pub, secret: '${SECRET}'}]",
			"issuers[0].secret must not be set beside public keys"},
		{"issuers: [{issuer: a, audience: b, jwks_url: 'http://x/y', algorithm: RS256}]",
			"issuers[0].jwks_url must be an https URL"},
		{"issuers: [{issuer: a, audience: b, jwks_url: 'https://x/y'}]",
			"issuers[0].algorithm must be set"},
		{"issuers: [{issuer: a, audience: b, jwks_url: 'https://x/y', algorithm: HS256}]",
			"issuers[0].algorithm is HS256"},
		{"issuers: [{issuer: a, audience: b, jwks_url: 'https://x/y', algorithm: RS256, ca_file: " +
			"nope}]",
			"issuers[0].ca_file can't be read"},
		{"issuers: [{issuer: a, audience: b, jwks_url: 'https://x/y', algorithm: RS256, ca_file: " +
			"secret}]",
			"issuers[0].ca_file has no PEM block"},
		{"issuers: [{issuer: a, audience: b, jwks_url: 'https://x/y', algorithm: RS256, refresh: " +
			"1ms}]",
			"issuers[0].refresh must be between 1s and 24h"},
		{"issuers: [{issuer: a, audience: b, jwks_url: 'https://x/y', algorithm: RS256, " +
			"allow_http: maybe}]",
			"issuers[0].allow_http must be true or false"},
		{"issuers: [{issuer: a, audience: b, secret: '${SECRET}', scopes: {x: fly}}]",
			`issuers[0].scopes names the unknown scope "fly"`},
		{"issuers: [{issuer: a, audience: b, secret: '${SECRET}', scopes: {x: {a: b}}}]",
			"issuers[0].scopes.x must be a text or a list of texts"},
		{"issuers: [{issuer: a, audience: b, secret: '${SECRET}', tenants: [A]}]",
			`issuers[0].tenants has "A"`},
		{"issuers: [{issuer: a, audience: b, secret: '${SECRET}', type: x+jwt, admin_type: x+jwt}]",
			"issuers[0].admin_type must not be"},
		{"issuers: [{issuer: a, audience: b, secret: '${SECRET}'}, {issuer: a, audience: c, " +
			"public_keys_file: k.pem.pub}]",
			"issuers[1].issuer is that of another issuer too"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			err := check(t, tc.text)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "ASYNCFLOW_JWT_ISSUERS_FILE: ")
			require.NotContains(t, err.Error(), testJWTSecret)
		})
	}
	_, err := jwtFlags{JWTIssuersFile: filepath.Join(dir, "nope")}.verifier(os.LookupEnv)
	require.ErrorContains(t, err, "no such file")
	_, err = jwtFlags{JWTSecret: "short", JWTIssuer: "a", JWTAudience: "b", JWTType: "t",
		JWTAdminType: "u"}.verifier(os.LookupEnv)
	require.ErrorContains(t, err, "ASYNCFLOW_JWT_SECRET must have at least 32 bytes")
	_, err = jwtFlags{}.verifier(os.LookupEnv)
	require.ErrorContains(t, err,
		"set one of ASYNCFLOW_JWT_SECRET, ASYNCFLOW_JWT_SECRET_FILE and "+
			"ASYNCFLOW_JWT_PUBLIC_KEYS_FILE, or ASYNCFLOW_JWT_ISSUERS_FILE")
}
