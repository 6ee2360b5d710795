package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
)

// listedTokens returns the tokens that are listed.
func listedTokens(t *testing.T, env map[string]string, args ...string) []tokenOut {
	t.Helper()
	r := runCLI(t, env, append([]string{"token", "list", "-o", "json"}, args...)...)
	require.Zero(t, r.code, r.stderr)
	var list struct{ Data []tokenOut }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	return list.Data
}

// The list shows what a token may claim.
func TestTokenListShowsLimits(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": database(t), "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	create := func(subject string, args ...string) {
		r := runCLI(t, env, append([]string{"token", "create", "--tenant", testTenant, "--scope",
			"work", "--subject", subject}, args...)...)
		require.Zero(t, r.code, r.stderr)
	}
	create("anna", "--claimer", "anna,desk-*", "--types", "moderation,orders/check", "--label",
		"lang=de", "--label", "lang=en")
	create("bob")
	limits := map[string]auth.ClaimLimits{}
	for _, one := range listedTokens(t, env) {
		limits[one.Subject] = one.Limits
	}
	assert.Equal(t, map[string]auth.ClaimLimits{"bob": {}, "anna": {
		Claimers: auth.Claimers{"anna", "desk-*"}, Labels: auth.Labels{"lang": {"de", "en"}},
		Stages: auth.Stages{"moderation", "orders/check"}}}, limits)
	r := runCLI(t, env, "token", "list")
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "claimers anna, desk-*; labels lang=de, lang=en; "+
		"types moderation, orders/check")
}

// A token that was made with the database at hand is listed, without the token, and revoked by its
// id: within 5 s on all nodes.
func TestRevokeOnAllNodes(t *testing.T) {
	t.Parallel()
	url := database(t)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	create := func(args ...string) string {
		r := runCLI(t, env, append([]string{"token", "create", "--subject", "anna"}, args...)...)
		require.Zero(t, r.code, r.stderr)
		return strings.TrimSpace(r.stdout)
	}
	token := create("--tenant", testTenant, "--scope", "read")
	create("--admin")
	unlisted := create("--tenant", testTenant, "--scope", "read", "--no-list")
	assert.Len(t, listedTokens(t, env), 2)
	list := listedTokens(t, env, "--tenant", testTenant)
	require.Len(t, list, 1)
	d, err := auth.Describe(token)
	require.NoError(t, err)
	assert.Equal(t, []any{d.ID, "asyncflow", "tenant", testTenant, "anna", "read"},
		[]any{list[0].ID, list[0].Issuer, list[0].Kind, list[0].Tenant, list[0].Subject,
			list[0].Scopes})
	assert.WithinDuration(t, time.Now().Add(time.Hour), list[0].ExpiresAt, patience)
	assert.Zero(t, list[0].RevokedAt)

	nodes := []*process{startNode(t, url), startNode(t, url)}
	const path = "/v1/task-types"
	for _, p := range nodes {
		require.Equal(t, 200, p.status(token, path))
		require.Equal(t, 200, p.status(unlisted, path))
	}
	r := runCLI(t, env, "token", "revoke", d.ID)
	require.Zero(t, r.code, r.stderr)
	revoked := time.Now()
	for _, p := range nodes {
		require.Eventually(t, func() bool { return p.status(token, path) == 401 }, patience,
			20*time.Millisecond)
	}
	t.Log("refused on all nodes after", time.Since(revoked))
	for _, p := range nodes {
		require.Equal(t, 200, p.status(unlisted, path))
	}
	assert.NotZero(t, listedTokens(t, env, "--tenant", testTenant)[0].RevokedAt)
	again := runCLI(t, env, "token", "revoke", d.ID)
	assert.Equal(t, r.stdout, again.stdout, "it is revoked already")
	late := startNode(t, url)
	assert.Equal(t, 401, late.status(token, path), "a node knows it from the start")

	other, err := auth.Describe(unlisted)
	require.NoError(t, err)
	r = runCLI(t, env, "token", "revoke", other.ID)
	assert.Equal(t, exitNotFound, r.code, r.stderr)
	assert.Contains(t, r.stderr, "until")
	r = runCLI(t, env, "token", "revoke", other.ID, "--until",
		time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339))
	require.Zero(t, r.code, r.stderr)
	require.Eventually(t, func() bool { return nodes[0].status(unlisted, path) == 401 }, patience,
		20*time.Millisecond)

	for _, args := range [][]string{{token}, {"x", "--until", "2001-01-01T00:00:00Z"},
		{"x", "--until", "2999-01-01T00:00:00Z"}, {strings.Repeat("x", 256)}} {
		r = runCLI(t, env, append([]string{"token", "revoke"}, args...)...)
		assert.Equal(t, exitUsage, r.code, "%s: %s", args, r.stderr)
	}
}

// What is open by a token on any node ends when it is revoked: event streams, calls that wait for
// the end of a task, calls that wait for tasks, and sessions of the console.
func TestRevokeEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	url := database(t)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	r := runCLI(t, env, "token", "create", "--tenant", testTenant, "--scope", "read", "--scope",
		"work", "--subject", "anna")
	require.Zero(t, r.code, r.stderr)
	token := strings.TrimSpace(r.stdout)
	d, err := auth.Describe(token)
	require.NoError(t, err)
	const calls = "--max-streams-per-tenant=3"
	nodes := []*process{startNode(t, url, calls), startNode(t, url, calls)}
	c := nodes[0].client()
	_, err = c.PutTaskType(t.Context(), "judge", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "look", Mode: "claim"}}})
	require.NoError(t, err)
	task, err := c.Submit(t.Context(), client.NewTask{Type: "judge", Context: client.JSON(`1`),
		Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	ends := map[string]chan int{}
	for i, p := range nodes {
		for what, call := range map[string][2]string{
			"stream": {"GET /v1/tasks/" + task.ID + "/events"},
			"wait":   {"GET /v1/tasks/" + task.ID + "?wait=1m"},
			"claim": {"POST /v1/claims",
				`{"type":"judge","stage":"look","claimer":"anna","wait":"1m"}`},
		} {
			ends[fmt.Sprintf("%s of node %d", what, i)] = p.opened(t, token, call[0], call[1])
		}
		p.awaitLimit(t, token, task.ID)
	}
	session := nodes[0].login(t, token)
	for _, p := range nodes {
		require.Equal(t, 200, p.inSession(t, session))
	}

	r = runCLI(t, env, "token", "revoke", d.ID)
	require.Zero(t, r.code, r.stderr)
	revoked := time.Now()
	for what, end := range ends {
		select {
		case status := <-end:
			want := 401
			if strings.HasPrefix(what, "stream") {
				want = 200 // it had begun
			}
			assert.Equal(t, want, status, what)
		case <-time.After(50 * time.Second): // a wait would end by itself then
			t.Errorf("%s goes on", what)
		}
	}
	for _, p := range nodes {
		require.Eventually(t, func() bool { return p.inSession(t, session) == 401 }, patience,
			20*time.Millisecond)
	}
	t.Log("all have ended after", time.Since(revoked))
}

// opened makes a call, and returns a channel that gets its status when its answer is over. If there
// are too many open calls on the node, it makes the call again.
func (p *process) opened(t *testing.T, token, call, body string) chan int {
	t.Helper()
	method, path, _ := strings.Cut(call, " ")
	ended := make(chan int, 1)
	go func() {
		for {
			status := p.wholeAnswer(t, token, method, path, body)
			if status != http.StatusTooManyRequests {
				ended <- status
				return
			}
		}
	}()
	return ended
}

// wholeAnswer makes a call, reads its answer to its end, and returns its status: 0 without an
// answer, -1 if the answer broke off.
func (p *process) wholeAnswer(t *testing.T, token, method, path, body string) int {
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return -1
	}
	return resp.StatusCode
}

// awaitLimit waits until the node refuses one more open call of the tenant: it accepted all that
// its limit allows.
func (p *process) awaitLimit(t *testing.T, token, task string) {
	t.Helper()
	require.Eventually(t, func() bool {
		status := p.wholeAnswer(t, token, http.MethodHead, "/v1/tasks/"+task+"/events", "")
		return status == http.StatusTooManyRequests
	}, patience, 20*time.Millisecond)
}

// login returns the cookie of a session of the console that a token opens.
func (p *process) login(t *testing.T, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.url+"/console/login", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.NotEmpty(t, resp.Cookies())
	return resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
}

// inSession returns the status of a call in a session of the console.
func (p *process) inSession(t *testing.T, session string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", p.url+"/v1/task-types", nil)
	require.NoError(t, err)
	req.Header.Set("Cookie", session)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// A token can be given itself: it is read from standard input.
func TestRevokeReadsAToken(t *testing.T) {
	t.Parallel()
	cfg := auth.DefaultConfig()
	cfg.Issuer = "https://login.example.com"
	cfg.HMACSecret = []byte(testJWTSecret)
	issuer, err := auth.NewIssuer(cfg)
	require.NoError(t, err)
	token, err := issuer.Issue(testTenant, "anna", nil, time.Hour, time.Now())
	require.NoError(t, err)
	c := tokenRevokeCmd{ID: "-", Issuer: "asyncflow"}
	require.NoError(t, c.read(strings.NewReader(token+"\n")))
	d, err := auth.Describe(token)
	require.NoError(t, err)
	assert.Equal(t, []any{d.ID, cfg.Issuer, d.ExpiresAt}, []any{c.ID, c.Issuer, c.Until})
	for _, text := range []string{"", "\n", "a.b.c\n", strings.Repeat("a", 10_000), "{}"} {
		c := tokenRevokeCmd{ID: "-"}
		assert.ErrorContains(t, c.read(strings.NewReader(text)), "no token", text)
	}
}

// A token isn't made if it can't be listed as asked.
func TestTokenThatCannotBeListed(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_JWT_SECRET": testJWTSecret,
		"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"}
	r := runCLI(t, env, "token", "create", "--tenant", testTenant)
	assert.NotZero(t, r.code)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, "--no-list")
	r = runCLI(t, env, "token", "create", "--tenant", testTenant, "--no-list")
	assert.Zero(t, r.code, r.stderr)
	assert.Equal(t, 2, strings.Count(r.stdout, "."))
}
