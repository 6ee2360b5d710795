package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// operatorRows returns the operator's audit, oldest first.
func operatorRows(t *testing.T, database string) []asyncflow.AuditEntry {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: database, Node: "reader",
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	defer s.Close()
	all, err := s.Audit(t.Context(), store.AuditFilter{Limit: 1000})
	require.NoError(t, err)
	slices.Reverse(all)
	return all
}

// Changes that commands make directly in the database leave entries as well, with the user of this
// machine.
func TestCommandsAreAudited(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_URL": closedURL(t)}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"migrate", "up"}, 0},
		{[]string{"migrate", "up"}, 0}, // nothing to do, no entry
		{[]string{"tenants", "create", "acme"}, 0},
		{[]string{"tenants", "create", "acme"}, 0},
		{[]string{"tenants", "create", "No Name"}, 1},
		{[]string{"governance", "run", "fold"}, 0},
		{[]string{"governance", "run", "fold", "--dry-run"}, 0}, // reads only
		{[]string{"tenants", "list"}, 0},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := runCLI(t, env, c.args...)
			require.Equal(t, c.code, r.code, r.stderr)
		})
	}
	all := operatorRows(t, url)
	var got []string
	for _, e := range all {
		got = append(got, e.Action+" "+e.Object+" "+string(e.Outcome)+" "+e.Code)
		assert.Equal(t, asyncflow.AuditFromCLI, e.Origin)
		assert.Regexp(t, `^[^@]+@[^@]+$`, e.Subject)
		assert.Zero(t, e.Status)
		assert.Contains(t, e.UserAgent, "asyncflow/")
		assert.WithinDuration(t, time.Now(), e.At, time.Minute)
	}
	require.Equal(t, []string{"schema.migrate  done ", "tenant.create acme done ",
		"tenant.create acme done ",
		"tenant.create No Name refused invalid_argument", "governance.run fold done "}, got)
	assert.Equal(t, []any{true, false}, []any{all[1].Detail["created"], all[2].Detail["created"]})
}

// forget by hand leaves the audit alone, unless its retention is given.
func TestAuditRetentionByHand(t *testing.T) {
	t.Parallel()
	url := database(t)
	execSQL(t, url, `INSERT INTO tenant_acme.audit (id, at, origin, action, outcome)
		SELECT gen_random_uuid(), now() - n * interval '100 d', 'api', 'a.b', 'done' FROM
		generate_series(1, 5) n`)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_URL": closedURL(t)}
	left := func() (n int) {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		require.NoError(t, conn.QueryRow(t.Context(),
			`SELECT count(*) FROM tenant_acme.audit`).Scan(&n))
		return n
	}
	require.Zero(t, runCLI(t, env, "governance", "run", "forget").code)
	require.Equal(t, 5, left())
	r := runCLI(t, env, "governance", "run", "forget", "--audit-retention=1h")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--audit-retention is 1h0m0s; it must be 24h to 87600h")
	r = runCLI(t, env, "governance", "run", "forget", "--audit-retention=8760h", "--dry-run")
	require.Contains(t, r.stdout, "forget would move 2 rows")
	env["ASYNCFLOW_AUDIT_RETENTION"] = "8760h"
	require.Zero(t, runCLI(t, env, "governance", "run", "forget").code)
	require.Equal(t, 3, left())
}

func TestBadAuditFlags(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/none",
		"ASYNCFLOW_SECRET": testSecret, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	for flag, want := range map[string]string{
		"--audit-retention=23h": "--audit-retention is 23h0m0s; it must be 24h to " +
			"87600h",
		"--audit-retention=100000h":          "--audit-retention is 100000h0m0s",
		"--trusted-proxies=10.0.0.0/8,nope":  `--trusted-proxies has "nope"; it must be networks such as`,
		"--trusted-proxies=10.0.0.0/33":      `--trusted-proxies has "10.0.0.0/33"`,
		"--trusted-proxies=::ffff:1.2.3.0/8": `--trusted-proxies has "::ffff:1.2.3.0/8"`,
	} {
		t.Run(flag, func(t *testing.T) {
			r := runCLI(t, env, "serve", flag)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, want)
		})
	}
	proxies, err := auditFlags{TrustedProxies: []string{"10.1.2.3/8", "::1", "192.0.2.1"}}.proxies()
	require.NoError(t, err)
	assert.Equal(t, "[10.0.0.0/8 ::1/128 192.0.2.1/32]", fmt.Sprint(proxies))
}

// For a node behind a proxy, the command's list shows who made a call, and from where.
func TestAuditOfANode(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := startNode(t, url, "--trusted-proxies=127.0.0.0/8")
	_, err := p.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.url+"/v1/task-types/pipe/pause",
		nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+issue(t, auth.ScopeOperate))
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	env := map[string]string{"ASYNCFLOW_URL": p.url, "ASYNCFLOW_TOKEN": issue(t, auth.ScopeManage)}
	r := runCLI(t, env, "audit", "list")
	require.Zero(t, r.code, r.stderr)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 3)
	assert.Regexp(t, `^AT +SUBJECT +ACTION +OBJECT +OUTCOME +STATUS +ADDRESS +CALLS +REQUEST$`,
		lines[0])
	assert.Regexp(t,
		`^\S+Z +\S+@acme +task_type\.pause +pipe +done +200 +203\.0\.113\.9 +1 +[0-9a-f]{32}$`,
		lines[1])
	assert.Regexp(t, `task_type\.put +pipe +done +201 +127\.0\.0\.1`, lines[2])
	r = runCLI(t, env, "audit", "list", "--action", "task_type.pause", "-o", "json")
	var list client.AuditList
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list), r.stdout)
	require.Len(t, list.Data, 1)
	assert.Equal(t, "127.0.0.1", list.Data[0].Proxy)
	assert.Equal(t, exitForbidden, runCLI(t, env, "audit", "list", "--operator").code)
	env["ASYNCFLOW_TOKEN"] = issueAdmin(t)
	require.Zero(t, runCLI(t, env, "audit", "list", "--operator").code)
}

// issue returns a token for the test's tenant.
func issue(t *testing.T, scopes ...auth.Scope) string {
	t.Helper()
	token, err := testIssuer(t).Issue(testTenant, "test", scopes, time.Hour, time.Now())
	require.NoError(t, err)
	return token
}

// issueAdmin returns an operator's token.
func issueAdmin(t *testing.T) string {
	t.Helper()
	token, err := testIssuer(t).IssueAdmin("test", time.Hour, time.Now())
	require.NoError(t, err)
	return token
}

func testIssuer(t *testing.T) *auth.Issuer {
	t.Helper()
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(testJWTSecret)
	i, err := auth.NewIssuer(cfg)
	require.NoError(t, err)
	return i
}

// --follow lists each entry once, oldest first, and leaves out its own calls.
func TestAuditFollow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	entry := func(id, action string, after time.Duration) client.AuditEntry {
		return client.AuditEntry{ID: id, At: at.Add(after), Origin: "api", Action: action,
			Outcome: client.AuditDone, Calls: 1}
	}
	var mu sync.Mutex
	var asked []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pages := [][]client.AuditEntry{
		{entry("2", "task_type.put", 2*time.Second), entry("1", "task.cancel", time.Second)},
		{entry("4", "audit.list", 4*time.Second), entry("3", "endpoint.create", 3*time.Second),
			entry("2", "task_type.put", 2*time.Second)},
		{entry("5", "endpoint.delete", 1500*time.Millisecond),
			entry("4", "audit.list", 4*time.Second), entry("3", "endpoint.create", 3*time.Second)},
	}
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Query().Get("since"))
		n := min(len(asked), len(pages))
		if len(asked) > len(pages) {
			cancel()
		}
		answer(w, 200, client.AuditList{Data: pages[n-1]})
	})
	var out strings.Builder
	api, err := client.New(env["ASYNCFLOW_URL"], "a-token")
	require.NoError(t, err)
	g := &globals{stdout: &out, stderr: &out, output: "json", api: api}
	require.NoError(t, (&auditListCmd{Limit: 50}).follow(ctx, g, time.Millisecond))
	var ids []string
	for line := range strings.Lines(out.String()) {
		var e client.AuditEntry
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		ids = append(ids, e.ID)
	}
	assert.Equal(t, []string{"1", "2", "3", "5"}, ids)
	assert.Equal(t, []string{"", at.Add(2*time.Second - followBack).Format(time.RFC3339Nano)},
		asked[:2])
	r := runCLI(t, env, "audit", "list", "--follow", "--until", "1h")
	assert.Equal(t, exitUsage, r.code)
}
