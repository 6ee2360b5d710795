package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/store"
)

// entries returns the whole audit of a tenant or (tenant "") of the operator, oldest first.
func (b *bundle) entries(tenant string) []asyncflow.AuditEntry {
	b.t.Helper()
	all, err := b.store.Audit(b.t.Context(), store.AuditFilter{Tenant: tenant, Limit: 100_000})
	require.NoError(b.t, err)
	slices.Reverse(all)
	return all
}

// ask makes a call with an id and returns the answer and the entries of that id.
func (b *bundle) ask(id, token, method, path, body string) (answer, []asyncflow.AuditEntry) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path,
		strings.NewReader(body))
	require.NoError(b.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-Request-Id", id)
	req.Header.Set("User-Agent", "the-test/1")
	a := b.do(req)
	require.Equal(b.t, id, a.header.Get("X-Request-Id"))
	all := append(b.entries("acme"), b.entries("")...)
	return a, slices.DeleteFunc(all, func(e asyncflow.AuditEntry) bool { return e.RequestID != id })
}

// managing is a call that manages something.
type managing struct {
	id, method, path, body string
	status                 int
	object                 string
	detail                 string // a part of its JSON
}

// managing returns calls that manage something, in an order in which each can succeed.
func (b *bundle) managing() []managing {
	const stages = `{"stages":[{"name":"first"}]}`
	pipe := func() string {
		return read[api.SubmittedTask](b, 201,
			b.call("POST", "/v1/tasks",
				`{"type":"pipe","context":"`+secretContext+`","delay":"1h"}`)).ID
	}
	task, again := pipe(), pipe()
	require.Equal(b.t, 200, b.call("POST", "/v1/tasks/"+again+"/cancel", "").status)
	parent := b.parent()
	made := read[api.Endpoint](b, 201,
		b.call("POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://w.example.com/x?key=`+secretURL+`"}`))
	running := read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/cancel", `{"type":"pipe","pace":0.01}`))
	return []managing{
		{"putTaskType", "PUT", "/v1/task-types/extra?dry_run=true", stages, 201, "extra",
			`{"dry_run":true}`},
		{"putTaskType", "PUT", "/v1/task-types/extra", stages, 201, "extra", `{"version":1}`},
		{"putTaskType", "PUT", "/v1/task-types/extra",
			`{"stages":[{"name":"first"},{"name":"second"}]}`,
			200, "extra", `{"version":2}`},
		{"pauseTaskType", "POST", "/v1/task-types/extra/pause", `{"reason":"` + secretContext +
			`"}`, 200,
			"extra", ``},
		{"resumeTaskType", "POST", "/v1/task-types/extra/resume", ``, 200, "extra", ``},
		{"releaseFlowKey", "POST", "/v1/task-types/extra/release", `{"flow_key":"k"}`, 200, "extra",
			`{"flow_key":"k","released":0}`},
		{"createEndpoint", "POST", "/v1/endpoints",
			`{"type":"extra","stage":"first","url":"https://w.example.com/y?key=` + secretURL +
				`","secret":"` + secretOwn + `"}`, 201, "*", `{"stage":"first","type":"extra"}`},
		{"updateEndpoint", "PATCH", "/v1/endpoints/" + made.ID, `{"weight":2}`, 200, made.ID, ``},
		{"testEndpoint", "POST", "/v1/endpoints/" + made.ID + "/test",
			`{"context":"` + secretContext + `"}`, 200, made.ID,
			`{"outcome":"failed","stage":"first","type":"pipe"}`},
		{"verifyEndpoint", "POST", "/v1/endpoints/" + made.ID + "/verify", ``, 200, made.ID, ``},
		{"enableEndpoint", "POST", "/v1/endpoints/" + made.ID + "/enable", ``, 200, made.ID, ``},
		{"rotateEndpointSecret", "POST", "/v1/endpoints/" + made.ID + "/rotate-secret",
			`{"overlap":"1h"}`, 200, made.ID, ``},
		{"deleteEndpoint", "DELETE", "/v1/endpoints/" + made.ID, ``, 204, made.ID, ``},
		{"putSchedule", "PUT", "/v1/schedules/nightly?dry_run=true", `{"type":"pipe","context":"` +
			secretContext + `","cron":"@daily"}`, 201, "nightly", `{"dry_run":true}`},
		{"putSchedule", "PUT", "/v1/schedules/nightly", `{"type":"pipe","context":"` +
			secretContext +
			`","cron":"@daily"}`, 201, "nightly", `{"version":1}`},
		{"putSchedule", "PUT", "/v1/schedules/nightly",
			`{"type":"pipe","context":1,"cron":"@daily"}`,
			200, "nightly", `{"version":2}`},
		{"pauseSchedule", "POST", "/v1/schedules/nightly/pause", ``, 200, "nightly", ``},
		{"resumeSchedule", "POST", "/v1/schedules/nightly/resume", ``, 200, "nightly", ``},
		{"triggerSchedule", "POST", "/v1/schedules/nightly/trigger", ``, 201, "nightly",
			`{"task":"pipe.1.`},
		{"deleteSchedule", "DELETE", "/v1/schedules/nightly", ``, 204, "nightly", ``},
		{"patchTask", "PATCH", "/v1/tasks/" + task, `{"priority":60}`, 200, task,
			`{"priority":60}`},
		{"patchTask", "PATCH", "/v1/tasks/" + task, `{"priority":60}`, 200, task,
			`{"priority":60}`},
		{"patchTask", "PATCH", "/v1/tasks/" + task, `{"start_by":"1h","end_by":"2h"}`, 200, task,
			`{"end_by":"2h","start_by":"1h"}`},
		{"pauseTask", "POST", "/v1/tasks/" + parent + "/pause", `{"reason":"` + secretContext +
			`"}`, 200,
			parent, ``},
		{"resumeTask", "POST", "/v1/tasks/" + parent + "/resume", ``, 200, parent, ``},
		{"cancelTask", "POST", "/v1/tasks/" + task + "/cancel", `{"reason":"` + secretContext +
			`"}`, 200,
			task, ``},
		{"cancelTask", "POST", "/v1/tasks/" + task + "/cancel", ``, 200, task, ``},
		{"redriveTask", "POST", "/v1/tasks/" + again + "/redrive", `{"context":"` + secretContext +
			`","end_by":"1h"}`,
			200, again, `{"context":"edited","end_by":"1h"}`},
		{"stopOperation", "POST", "/v1/operations/" + running.ID + "/stop", ``, 200, running.ID,
			``},
		{"stopOperation", "POST", "/v1/operations/" + running.ID + "/stop", ``, 200, running.ID,
			``},
		{"prioritizeTasks", "POST", "/v1/tasks/priority",
			`{"type":"pipe","priority":9,"dry_run":true}`,
			200, "pipe", `{"dry_run":true,"priority":9}`},
		{"prioritizeTasks", "POST", "/v1/tasks/priority", `{"type":"pipe","priority":9}`,
			202, "pipe", `"total":2`},
		{"delayTasks", "POST", "/v1/tasks/delay",
			`{"type":"pipe","run_at":"2027-01-01T00:00:00Z","dry_run":true}`,
			200, "pipe", `{"dry_run":true,"run_at":"2027-01-01T00:00:00Z"}`},
		{"cancelTasks", "POST", "/v1/tasks/cancel", `{"type":"pipe","dry_run":true}`, 200, "pipe",
			`{"dry_run":true}`},
		{"cancelTasks", "POST", "/v1/tasks/cancel", `{"type":"pipe","reason":"` + secretContext +
			`"}`,
			202, "pipe", `"total":2`},
		{"redriveTasks", "POST", "/v1/tasks/redrive", `{"type":"pipe","dry_run":true}`, 200, "pipe",
			`{"dry_run":true}`},
		{"redriveTasks", "POST", "/v1/tasks/redrive", `{"type":"pipe"}`, 202, "pipe", `"total":0`},
		{"rerunTask", "POST", "/v1/tasks/" + task + "/rerun", `{"context":"` + secretContext +
			`"}`, 201, task, `{"context":"edited","task":"pipe.1.`},
		{"rerunTasks", "POST", "/v1/tasks/rerun", `{"type":"pipe","status":"failed","dry_run":true}`, 200, "pipe",
			`{"dry_run":true}`},
		{"eraseTask", "DELETE", "/v1/tasks/" + task, ``, 200, task, ``},
		{"eraseTasks", "POST", "/v1/tasks/erase", `{"type":"pipe","dry_run":true}`, 200, "pipe",
			`{"dry_run":true}`},
		{"eraseTasks", "POST", "/v1/tasks/erase", `{"type":"pipe"}`, 202, "pipe", `"total":0`},
		{"countTasks", "POST", "/v1/tasks/count", `{"type":"pipe"}`, 202, "pipe", `"total":`},
		{"putAlerts", "PUT", "/v1/alerts", `{"url":"https://ops.example.com/?key=` + secretURL +
			`","secret":"` + secretOwn + `","rules":{"backlog_age":"5m"}}`, 200, "", ``},
		{"getAlerts", "GET", "/v1/alerts", ``, 200, "", ``},
		{"deleteAlerts", "DELETE", "/v1/alerts", ``, 204, "", ``},
		{"getGovernance", "GET", "/v1/governance", ``, 200, "", ``},
		{"listAudit", "GET", "/v1/audit", ``, 200, "", ``},
		{"listOperatorAudit", "GET", "/v1/audit/operator", ``, 200, "", ``},
		{"deleteTaskType", "DELETE", "/v1/task-types/extra", ``, 204, "extra", ``},
		{"createTenant", "POST", "/v1/tenants", `{"slug":"globex"}`, 201, "*", ``},
		{"listTenants", "GET", "/v1/tenants", ``, 200, "", ``},
		{"getTenant", "GET", "/v1/tenants/globex", ``, 200, "globex", ``},
		{"patchTenant", "PATCH", "/v1/tenants/globex", `{"suspended":true}`, 200, "globex", ``},
		{"deleteTenant", "DELETE", "/v1/tenants/globex", ``, 202, "globex", ``},
		{"restoreTenant", "POST", "/v1/tenants/globex/restore", ``, 200, "globex", ``},
	}
}

// Texts that may be in no entry.
const (
	secretContext = "the-patient-has-a-cold"
	secretURL     = "a-key-in-a-query"
	secretOwn     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// managed returns the operations of the contract that manage or change something. managing must
// call each of them.
func managed(t *testing.T) (ids []string, scopes map[string]auth.Scope) {
	doc := contracttest.Document()
	scopes = map[string]auth.Scope{}
	for _, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			name, _ := op.Extensions["x-scope"].(string)
			scope := auth.Scope(name)
			if op.Security != nil && slices.ContainsFunc(*op.Security,
				func(r openapi3.SecurityRequirement) bool { return r["adminToken"] != nil }) {
				scope = auth.ScopeAdmin
			}
			hot := slices.Contains([]string{"submitTask", "submitTasks", "sendSignal",
				"claimTasks"},
				op.OperationID)
			if scope == auth.ScopeManage || scope == auth.ScopeAdmin ||
				scope != "" && method != "GET" && !hot {
				ids = append(ids, op.OperationID)
				scopes[op.OperationID] = scope
			}
		}
	}
	slices.Sort(ids)
	return ids, scopes
}

// Every call that manages something leaves exactly one entry, whether it was done, refused or
// denied. There is no secret in an entry.
func TestEveryManagingCallIsAudited(t *testing.T) {
	b := setup(t)
	b.pipe()
	calls := b.managing()
	ids, scopes := managed(t)
	require.Greater(t, len(ids), 20)
	var called []string
	admin := b.adminToken()
	for i, c := range calls {
		called = append(called, c.id)
		token, tenant := b.token, "acme"
		if scopes[c.id] == auth.ScopeAdmin {
			token, tenant = admin, ""
		}
		what := fmt.Sprintf("%d %s", i, c.id)
		a, entries := b.ask(fmt.Sprintf("good-%d", i), token, c.method, c.path, c.body)
		require.Equal(t, c.status, a.status, "%s: %s", what, a.body)
		require.Len(t, entries, 1, what)
		e := entries[0]
		action, objectType := asyncflow.ActionOf(c.id)
		assert.Equal(t, []any{action, objectType, asyncflow.AuditDone, c.status, "", tenant, "test",
			"asyncflow", "127.0.0.1", "", "the-test/1", int64(1), asyncflow.AuditFromAPI},
			[]any{e.Action, e.ObjectType, e.Outcome, e.Status, e.Code, e.Tenant, e.Subject,
				e.Issuer, e.Address, e.Proxy, e.UserAgent, e.Calls, e.Origin}, what)
		assert.NotEmpty(t, e.TokenID, what)
		assert.NotEmpty(t, e.Scopes, what)
		if c.object != "*" {
			assert.Equal(t, c.object, e.Object, what)
		}
		assert.Contains(t, text(e.Detail), c.detail, what)

		a, entries = b.ask(fmt.Sprintf("refused-%d", i), token, c.method,
			strings.Split(c.path, "?")[0]+"?nope=1", c.body)
		require.Equal(t, 400, a.status, what)
		require.Len(t, entries, 1, what)
		assert.Equal(t, []any{action, asyncflow.AuditRefused, 400, "invalid_argument"},
			[]any{entries[0].Action, entries[0].Outcome, entries[0].Status, entries[0].Code}, what)
	}
	slices.Sort(called)
	require.Equal(t, ids, slices.Compact(called),
		"each operation of the contract that manages something is called here")
	for _, e := range append(b.entries("acme"), b.entries("")...) {
		for _, secret := range []string{secretContext, secretURL, secretOwn, b.token, admin} {
			require.NotContains(t, text(e), secret)
		}
	}
}

// A change that comes too late is recorded as refused, not as done.
func TestRefusedByItsState(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	for range 2 {
		_, token := b.lease()
		if b.call("PATCH", "/v1/tasks/"+id, `{"priority":1}`).status != 409 {
			t.Error("it is running")
		}
		require.Equal(t, 200, b.callAs(token, "POST", path+"/complete", "").status)
	}
	for i, c := range []struct{ method, path, body string }{
		{"POST", "/cancel", ""}, {"POST", "/redrive", ""}, {"PATCH", "", `{"priority":1}`},
	} {
		a, entries := b.ask(fmt.Sprintf("late-%d", i), b.token, c.method, "/v1/tasks/"+id+c.path,
			c.body)
		require.Equal(t, 409, a.status, "%s", a.body)
		require.Len(t, entries, 1)
		e := entries[0]
		assert.Equal(t, []any{asyncflow.AuditRefused, 409, "conflict", id},
			[]any{e.Outcome, e.Status, e.Code, e.Object})
	}
}

// Reads and submits leave no entry.
func TestOtherCallsAreNotAudited(t *testing.T) {
	b := setup(t)
	b.pipe()
	before := len(b.entries("acme"))
	id, path := b.submitOne()
	for _, p := range []string{"/v1/tasks/" + id, "/v1/tasks?type=pipe", "/v1/stats",
		"/v1/task-types",
		"/v1/operations", "/healthz"} {
		require.Equal(t, 200, b.call("GET", p, "").status, p)
	}
	_, token := b.lease()
	require.Equal(t, 200, b.callAs(token, "POST", path+"/complete", "").status)
	assert.Len(t, b.entries("acme"), before)
	assert.Empty(t, b.entries(""))
}

// A tenant sees only its own entries, and none of the operator's.
func TestAuditOfTwoTenants(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	other := b.newToken("other", auth.ScopeManage)
	require.Equal(t, 201, b.callAs(other, "PUT", "/v1/task-types/theirs",
		`{"stages":[{"name":"only"}]}`).status)
	admin := b.adminToken()
	require.Equal(t, 200, b.callAs(admin, "GET", "/v1/governance", "").status)
	list := func(token, path string) (objects []string) {
		for _, e := range read[api.AuditList](b, 200, b.callAs(token, "GET", path, "")).Data {
			objects = append(objects, e.Action+" "+e.Object+" "+e.Tenant)
		}
		return objects
	}
	assert.Equal(t, []string{"task_type.put pipe acme"}, list(b.token, "/v1/audit"))
	assert.Equal(t, []string{"task_type.put theirs other"}, list(other, "/v1/audit"))
	assert.Equal(t, []string{"audit.list  other", "task_type.put theirs other"},
		list(other, "/v1/audit"), "reading is seen too")
	assert.Equal(t, []string{"governance.get  "}, list(admin, "/v1/audit/operator"))
	assert.Equal(t, 403, b.call("GET", "/v1/audit/operator", "").status)
	assert.Equal(t, 403, b.callAs(admin, "GET", "/v1/audit", "").status)
}

func TestAuditPages(t *testing.T) {
	b := setup(t)
	b.pipe()
	for range 5 {
		b.call("POST", "/v1/task-types/pipe/pause", "")
	}
	b.call("DELETE", "/v1/task-types/nope", "")
	var seen []string
	for cursor := ""; ; {
		page := read[api.AuditList](b, 200,
			b.call("GET",
				"/v1/audit?limit=3&until=2999-01-01T00:00:00Z&subject=test&cursor="+cursor, ""))
		for _, e := range page.Data {
			seen = append(seen, e.ID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	slices.Sort(seen)
	assert.Len(t, slices.Compact(seen), 7)
	count := func(query string) int {
		return len(read[api.AuditList](b, 200, b.call("GET", "/v1/audit?"+query, "")).Data)
	}
	assert.Equal(t, 5, count("action=task_type.pause"))
	assert.Equal(t, 1, count("outcome=refused"))
	assert.Equal(t, 0, count("subject=nobody"))
	assert.Equal(t, 0, count("since=2999-01-01T00:00:00Z"))
	for _, bad := range []string{"cursor=abc", "cursor=" + "enR6IGFiYw", "outcome=maybe",
		"limit=501", "since=yesterday"} {
		a := b.call("GET", "/v1/audit?"+bad, "")
		assert.Equal(t, 400, a.status, bad)
		assert.Equal(t, strings.Split(bad, "=")[0], a.problem.Errors[0].Field)
	}
}

// When the audit can't be written, no change is made.
func TestNoChangeWithoutItsEntry(t *testing.T) {
	b := setup(t)
	b.pipe()
	_, err := b.db.Exec(t.Context(),
		`ALTER TABLE tenant_acme.audit ADD CONSTRAINT full_disk CHECK (action = 'task_type.put')`)
	require.NoError(t, err)
	assert.Equal(t, 500, b.call("DELETE", "/v1/task-types/pipe", "").status)
	assert.Equal(t, 200, b.call("GET", "/v1/task-types/pipe", "").status)
}
