package httpapi_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// admin makes a call with an operator's token.
func (b *bundle) admin(method, path, body string) answer {
	b.t.Helper()
	return b.callAs(b.adminToken(), method, path, body)
}

// A tenant can be created, shown, suspended, resumed, deleted, restored and deleted again.
func TestTenants(t *testing.T) {
	b := setup(t)
	made := read[api.Tenant](b, 201,
		b.admin("POST", "/v1/tenants",
			`{"slug":"globex","quotas":{"pending_tasks":7,"context_bytes":-1}}`))
	assert.Equal(t, api.Tenant{Slug: "globex", State: asyncflow.TenantActive,
		Quotas: asyncflow.Quotas{PendingTasks: 7, ContextBytes: -1}, CreatedAt: made.CreatedAt},
		made)
	assert.Equal(t, 409, b.admin("POST", "/v1/tenants", `{"slug":"globex"}`).status)
	token := b.newToken("globex", auth.ScopeManage, auth.ScopeRead, auth.ScopeOperate,
		auth.ScopeSubmit)
	read[api.TaskType](b, 201, b.callAs(token, "PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"only"}]}`))
	read[api.SubmittedTask](b, 201,
		b.callAs(token, "POST", "/v1/tasks", `{"type":"pipe","context":1}`))

	got := read[api.Tenant](b, 200, b.admin("GET", "/v1/tenants/globex", ""))
	one, none := 1.0, 0.0
	assert.Equal(t, []api.QuotaUsage{{Name: "task_types", Limit: 1000, Used: &one},
		{Name: "pending_tasks", Limit: 7, Used: &one, Own: true}}, got.Usage[:2])
	assert.Equal(t, api.QuotaUsage{Name: "context_bytes", Own: true}, got.Usage[3])
	assert.Equal(t, api.QuotaUsage{Name: "concurrency", Used: &none}, got.Usage[5])
	assert.Equal(t, got.Usage, read[api.QuotaList](b, 200,
		b.callAs(token, "GET", "/v1/quota", "")).Data, "the tenant sees the same")

	patched := read[api.Tenant](b, 200,
		b.admin("PATCH", "/v1/tenants/globex", `{"quotas":{"pending_tasks":0,"concurrency":3}}`))
	assert.Equal(t, asyncflow.Quotas{ContextBytes: -1, Concurrency: 3}, patched.Quotas)
	suspended := read[api.Tenant](b, 200,
		b.admin("PATCH", "/v1/tenants/globex", `{"suspended":true,"reason":"the invoice is open"}`))
	assert.Equal(t, asyncflow.TenantSuspended, suspended.State)
	for _, path := range []string{"/v1/task-types", "/v1/quota", "/v1/tasks/pipe.1.1"} {
		a := b.callAs(token, "GET", path, "")
		assert.Equal(t, 403, a.status, path)
		assert.Equal(t, "tenant_suspended", a.problem.Code)
		assert.Equal(t, "the tenant globex is suspended: the invoice is open", a.problem.Detail)
	}
	again := read[api.Tenant](b, 200, b.admin("PATCH", "/v1/tenants/globex", `{"suspended":true}`))
	assert.Equal(t, suspended, again, "it keeps its time and its reason")
	assert.Equal(t, 200, b.admin("PATCH", "/v1/tenants/globex", `{"suspended":false}`).status)
	assert.Equal(t, 200, b.callAs(token, "GET", "/v1/task-types", "").status)

	deleted := read[api.Tenant](b, 202, b.admin("DELETE", "/v1/tenants/globex", ""))
	assert.Equal(t, asyncflow.TenantDeleted, deleted.State)
	assert.Equal(t, 7*24*time.Hour, deleted.DropAt.Sub(deleted.DeletedAt))
	a := b.callAs(token, "GET", "/v1/task-types", "")
	assert.Equal(t, []any{403, "tenant_suspended", "the tenant globex was deleted"},
		[]any{a.status, a.problem.Code, a.problem.Detail})
	assert.Equal(t, 409, b.admin("POST", "/v1/tenants", `{"slug":"globex"}`).status)
	assert.Equal(t, 409, b.admin("PATCH", "/v1/tenants/globex", `{"suspended":true}`).status)
	later := read[api.Tenant](b, 202, b.admin("DELETE", "/v1/tenants/globex?grace=48h", ""))
	assert.Equal(t, deleted.DeletedAt, later.DeletedAt)
	assert.WithinDuration(t, b.store.Clock.Now().Add(48*time.Hour), later.DropAt, time.Minute)
	assert.Equal(t, later, read[api.Tenant](b, 202, b.admin("DELETE", "/v1/tenants/globex", "")),
		"without a time nothing changes")
	restored := read[api.Tenant](b, 200, b.admin("POST", "/v1/tenants/globex/restore", ""))
	assert.Equal(t, asyncflow.TenantActive, restored.State)
	assert.Equal(t, asyncflow.StatusPending,
		read[api.Task](b, 200, b.callAs(token, "GET", "/v1/tasks/pipe.1.1", "")).Status,
		"nothing is lost")

	read[api.Tenant](b, 200, b.admin("PATCH", "/v1/tenants/globex", `{"suspended":true}`))
	read[api.Tenant](b, 202, b.admin("DELETE", "/v1/tenants/globex?grace=1h", ""))
	assert.Equal(t, asyncflow.TenantSuspended,
		read[api.Tenant](b, 200, b.admin("POST", "/v1/tenants/globex/restore", "")).State,
		"as it was before")
}

func TestTenantsInPages(t *testing.T) {
	b := setupTwo(t)
	for i := range 5 {
		_, err := b.db.Exec(t.Context(),
			`INSERT INTO asyncflow.tenants (slug, schema_version) VALUES ($1, 1)`,
			fmt.Sprint("t", i))
		require.NoError(t, err)
	}
	var slugs []string
	pages := 0
	for cursor := ""; ; {
		page := read[api.TenantList](b, 200,
			b.admin("GET", "/v1/tenants?limit=3&cursor="+cursor, ""))
		pages++
		for _, one := range page.Data {
			slugs = append(slugs, one.Slug)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	assert.Equal(t, []string{"acme", "other", "t0", "t1", "t2", "t3", "t4"}, slugs)
	assert.Equal(t, 3, pages)
	a := b.admin("GET", "/v1/tenants?cursor=%21", "")
	assert.Equal(t, []any{400, "cursor"}, []any{a.status, a.problem.Errors[0].Field})
}

func TestTenantsRefused(t *testing.T) {
	b := setup(t)
	_, err := store.CreateTenant(t.Context(), b.dbURL, asyncflow.OperatorTenant,
		store.WithoutRoles(pgtest.NoRoles()))
	require.NoError(t, err)
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"GET", "/v1/tenants/nobody", "", 404, ""},
		{"PATCH", "/v1/tenants/nobody", `{"suspended":true}`, 404, ""},
		{"DELETE", "/v1/tenants/nobody", "", 404, ""},
		{"POST", "/v1/tenants/nobody/restore", "", 404, ""},
		{"POST", "/v1/tenants", `{"slug":"Bad"}`, 400, "slug"},
		{"POST", "/v1/tenants", `{"slug":"x","quotas":{"pending_tasks":-2}}`, 400,
			"quotas.pending_tasks"},
		{"POST", "/v1/tenants", `{"slug":"x","quotas":{"submits_per_second":-0.5}}`, 400,
			"quotas.submits_per_second"},
		{"PATCH", "/v1/tenants/acme", `{"quotas":{"submits_per_second":0.001}}`, 400,
			"quotas.submits_per_second"},
		{"PATCH", "/v1/tenants/acme", `{"reason":"none"}`, 400, "reason"},
		{"PATCH", "/v1/tenants/acme", `{}`, 400, "body"},
		{"DELETE", "/v1/tenants/acme?grace=8761h", "", 400, "grace"},
		{"DELETE", "/v1/tenants/acme?grace=-1h", "", 400, "grace"},
		{"DELETE", "/v1/tenants/acme?grace=soon", "", 400, "grace"},
		{"DELETE", "/v1/tenants/acme?grace=1h&now=true", "", 400, "grace"},
		{"DELETE", "/v1/tenants/asyncflow", "", 409, ""},
		{"PATCH", "/v1/tenants/asyncflow", `{"suspended":true}`, 409, ""},
	} {
		a := b.admin(c.method, c.path, c.body)
		assert.Equal(t, c.status, a.status, "%s %s %s: %s", c.method, c.path, c.body, a.body)
		if c.field != "" && assert.NotEmpty(t, a.problem.Errors, "%s", a.body) {
			assert.Equal(t, c.field, a.problem.Errors[0].Field)
		}
	}
	assert.Equal(t, 403, b.call("GET", "/v1/tenants", "").status, "an operator's token is needed")
	assert.Equal(t, asyncflow.TenantActive,
		read[api.Tenant](b, 200, b.admin("GET", "/v1/tenants/acme", "")).State)
}

// While a tenant is suspended, the reports of its workers count.
func TestWorkersOfASuspendedTenant(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	_, completion := b.lease()
	read[api.Tenant](b, 200, b.admin("PATCH", "/v1/tenants/acme", `{"suspended":true}`))
	assert.Equal(t, 200, b.callAs(completion, "POST", path+"/heartbeat", "").status)
	assert.Equal(t, 200, b.callAs(completion, "POST", path+"/complete",
		`{"output":{"x":1}}`).status)
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	assert.True(t, pipe.Paused())
	read[api.Tenant](b, 200, b.admin("PATCH", "/v1/tenants/acme", `{"suspended":false}`))
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.Equal(t, []any{"second", asyncflow.StatusPending}, []any{task.Stage, task.Status})
}

// An event stream ends when its tenant is suspended.
func TestStreamOfASuspendedTenant(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events, _ := b.follow(ctx, b.token, id, "")
	read[api.Tenant](b, 200, b.admin("PATCH", "/v1/tenants/acme", `{"suspended":true}`))
	var err error
	for err == nil {
		_, err = events.next()
	}
	require.NoError(t, ctx.Err(), "the stream ended by itself: %v", err)
}

// When a name is used again, the new tenant gets nothing of the old one: neither its tasks nor its
// tokens.
func TestNameUsedAgain(t *testing.T) {
	b := setup(t)
	gov, err := governance.New(b.store, b.committer, governance.Config{})
	require.NoError(t, err)
	drop, err := gov.Job("drop-tenants")
	require.NoError(t, err)
	b.pipe()
	id, path := b.submitOne()
	_, completion := b.lease()
	oldToken, err := b.issuer.Issue("acme", "test", []auth.Scope{auth.ScopeSubmit, auth.ScopeRead},
		time.Hour, time.Now().Add(-5*time.Minute))
	require.NoError(t, err)
	require.Equal(t, 200, b.callAs(oldToken, "GET", "/v1/tasks/"+id, "").status)

	read[api.Tenant](b, 202, b.admin("DELETE", "/v1/tenants/acme?now=true", ""))
	due, err := drop.DryRun(t.Context())
	require.NoError(t, err)
	require.Len(t, due, 1)
	n, err := drop.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, due[0].Rows-3, n,
		"all tables but the three that say how far ids went, which went with the schema")
	assert.Equal(t, 404, b.admin("GET", "/v1/tenants/acme", "").status)
	a := b.callAs(b.token, "GET", "/v1/task-types", "")
	assert.Equal(t, 403, a.status)
	assert.Contains(t, a.problem.Detail, "there is no tenant")
	assert.Equal(t, 404, b.callAs(completion, "POST", path+"/complete", "").status)

	read[api.Tenant](b, 201, b.admin("POST", "/v1/tenants", `{"slug":"acme"}`))
	a = b.callAs(oldToken, "GET", "/v1/tasks/"+id, "")
	assert.Equal(t, 401, a.status, "a token of the tenant before: %s", a.body)
	assert.Contains(t, a.problem.Detail, "an earlier one of that name")
	b.token = b.newToken("acme", auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate,
		auth.ScopeManage)
	assert.Empty(t, read[api.TaskTypeList](b, 200, b.call("GET", "/v1/task-types", "")).Data)
	b.pipe()
	assert.Equal(t, 404, b.call("GET", "/v1/tasks/"+id, "").status)
	again, _ := b.submitOne()
	assert.Equal(t, "pipe.2.1", again, "the ids go on after those of the tenant before")
	b.lease()
	assert.Equal(t, 404, b.callAs(completion, "POST", path+"/complete", "").status)
	assert.Equal(t, asyncflow.StatusRunning,
		read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+again, "")).Status)
}

// If administration gets its own address, neither address serves the calls of the other.
func TestSurfaces(t *testing.T) {
	var cfg httpapi.Config
	b := setupWith(t, func(c *httpapi.Config) { c.Surface, cfg = httpapi.SurfacePublic, *c })
	cfg.Surface = httpapi.SurfaceAdmin
	server, err := httpapi.New(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		http.DefaultClient.CloseIdleConnections() // the server would wait for them
		require.NoError(t, server.Shutdown(20*time.Second))
		require.NoError(t, <-served)
	}()
	public, own := b.url, "http://"+l.Addr().String()
	for path, at := range map[string][2]int{ // on the public address, and on the other
		"/v1/tenants":      {404, 200},
		"/v1/tenants/acme": {404, 200},
		"/v1/governance":   {404, 200},
		"/v1/task-types":   {200, 404},
		"/v1/quota":        {200, 404},
		"/v1/nodes":        {200, 404},
		"/healthz":         {200, 200},
		"/readyz":          {200, 200},
		"/openapi.yaml":    {200, 200},
	} {
		for i, url := range []string{public, own} {
			b.url = url
			token := b.token
			if strings.HasPrefix(path, "/v1/tenants") || path == "/v1/governance" {
				token = b.adminToken()
			}
			assert.Equal(t, at[i], b.callAs(token, http.MethodGet, path, "").status, "%s of %s",
				path, []string{"public", "admin"}[i])
		}
	}
	b.url = own
	assert.Equal(t, 404, b.callAs("x", "POST", "/v1/callbacks/pipe.1.1/complete", "").status)
	assert.Equal(t, 404, b.call("OPTIONS", "/v1/tasks", "").status)
}
