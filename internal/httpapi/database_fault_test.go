package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// faultCalls are calls of a tenant: method, path, and a body where there is one. {n} is a number
// that is new in each round, {id} a task and {ep} an endpoint.
const faultCalls = `
POST /v1/tasks {"type":"pipe","context":{}}
POST /v1/tasks {"type":"pipe","context":{},"key":"k{n}"}
POST /v1/tasks {"type":"pipe","context":{},"depends_on":["{id}"]}
POST /v1/tasks {"type":"pipe","context":{},"depends_on":[{"type":"pipe","key":"later"}]}
POST /v1/tasks/batch {"tasks":[{"type":"pipe","context":{}},{"type":"pipe","context":{},"key":"a"}]}
POST /v1/signals {"name":"approved","type":"waits","key":"k{n}"}
GET /v1/tasks?type=pipe
GET /v1/tasks/count?type=pipe
GET /v1/tasks/{id}
GET /v1/tasks/{id}/attempts
GET /v1/tasks/{id}/checkpoint
GET /v1/tasks/{id}/votes
GET /v1/tasks/{id}/results
PATCH /v1/tasks/{id} {"priority":{n}}
POST /v1/tasks/{id}/pause
POST /v1/tasks/{id}/resume
POST /v1/tasks/{id}/redrive
POST /v1/tasks/redrive {"type":"pipe"}
POST /v1/tasks/{id}/rerun {"delay":"1h"}
POST /v1/tasks/rerun {"type":"pipe","status":"failed"}
POST /v1/tasks/delay {"type":"pipe","delay":"{n}s"}
POST /v1/tasks/priority {"type":"pipe","priority":{n}}
GET /v1/operations
GET /v1/stats
GET /v1/quota
GET /v1/alerts/firing
GET /v1/alerts
PUT /v1/alerts {"url":"https://ops.example.com/","rules":{"backlog_age":"{n}s"}}
GET /v1/task-types
GET /v1/task-types/pipe
GET /v1/task-types/pipe/rolls
PUT /v1/task-types/other {"stages":[{"name":"only","timeout":"{n}s"}]}
PUT /v1/task-types/new{n} {"stages":[{"name":"only"}]}
DELETE /v1/task-types/new{n}
POST /v1/task-types/pipe/pause
POST /v1/task-types/pipe/resume
GET /v1/endpoints
GET /v1/endpoints/{ep}
GET /v1/endpoints/{ep}/history
PATCH /v1/endpoints/{ep} {"weight":{n}}
POST /v1/endpoints/{ep}/enable
POST /v1/endpoints/{ep}/rotate-secret {"overlap":"1h"}
GET /v1/schedules
PUT /v1/schedules/nightly {"type":"pipe","context":{n},"cron":"@daily"}
POST /v1/schedules/nightly/trigger
POST /v1/schedules/nightly/pause
POST /v1/schedules/nightly/resume
GET /v1/audit`

// faultCallsOfOperators are calls with an operator's token.
const faultCallsOfOperators = `
GET /v1/tenants
POST /v1/tenants {"slug":"t{n}"}
PATCH /v1/tenants/other {"quotas":{"concurrency":{n}}}
GET /v1/nodes
GET /v1/governance
GET /v1/audit/operator
GET /readyz
GET /metrics`

// faults makes calls while the database fails.
type faults struct {
	*bundle
	id, endpoint, worker, operator string
	held                           []api.Delivery
	n                              int
}

// setupFaults makes the things that the calls are about.
func setupFaults(t *testing.T) *faults {
	t.Helper()
	b := setupTwo(t)
	b.pipe()
	b.claimed()
	read[api.TaskType](b, http.StatusCreated,
		b.call(http.MethodPut, "/v1/task-types/waits", approvalSpec))
	b.submitJudge(40)
	f := &faults{bundle: b, n: 10, operator: b.adminToken()}
	f.id = read[api.SubmittedTask](b, 201, b.call(http.MethodPost, "/v1/tasks",
		`{"type":"pipe","context":{},"delay":"1h"}`)).ID
	f.endpoint = read[api.Endpoint](b, 201, b.call(http.MethodPost, "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/"}`)).ID
	f.held = b.claim("held", `,"max":20`)
	var err error
	f.worker, err = b.issuer.Issue("acme", "c", []auth.Scope{auth.ScopeWork}, time.Hour, time.Now())
	require.NoError(t, err)
	return f
}

// round makes each call once, all at once, and waits for the answers.
func (f *faults) round() {
	f.n++
	held := f.held[f.n%len(f.held)]
	fill := strings.NewReplacer("{n}", fmt.Sprint(f.n), "{id}", f.id, "{ep}", f.endpoint,
		"{held}", held.TaskID)
	var calling sync.WaitGroup
	for token, calls := range map[string]string{
		f.token:    faultCalls,
		f.operator: faultCallsOfOperators,
		f.worker:   `POST /v1/claims {"type":"judge","stage":"look","claimer":"c","max":3}`,
		held.Callback.Token: `POST /v1/callbacks/{held}/heartbeat
			POST /v1/callbacks/{held}/heartbeat {"checkpoint":1}
			POST /v1/callbacks/{held}/progress {"percent":1,"checkpoint":2}
			GET /v1/callbacks/{held}/input
			GET /v1/callbacks/{held}/outputs/look
			POST /v1/callbacks/{held}/snooze {"retry_after":"1s"}
			POST /v1/callbacks/{held}/complete {"output":1}
			POST /v1/claims/{held}/release`,
	} {
		for call := range strings.Lines(strings.TrimSpace(fill.Replace(calls))) {
			method, rest, _ := strings.Cut(strings.TrimSpace(call), " ")
			path, body, _ := strings.Cut(rest, " ")
			calling.Go(func() {
				a := f.callAs(token, method, path, body)
				assert.NotEqual(f.t, http.StatusInternalServerError, a.status, "%s: %s", call,
					a.body)
			})
		}
	}
	calling.Wait()
}

// A call during a failover is never a fault of asyncflow: while connections end, statements are
// cancelled, or the database takes no writes, no answer is 500.
func TestFaultsOfTheDatabaseAreNotOurs(t *testing.T) {
	longform.Costly(t)
	f := setupFaults(t)
	for _, fault := range []func(){
		func() { f.cut("pg_terminate_backend") },
		func() { f.cut("pg_cancel_backend") },
		func() {
			f.readOnly()
			f.call(http.MethodPost, "/v1/task-types/pipe/pause", "")
			f.writable()
		},
	} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			fault()
		}()
		for going := true; going; {
			f.round()
			select {
			case <-over:
				going = false
			default:
			}
		}
	}
}

// cut ends statements and idle connections of the node by a function of Postgres.
func (f *faults) cut(how string) {
	const cuts = 60
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for n := 0; n < cuts; {
		var some int
		err := f.db.QueryRow(f.t.Context(), `SELECT count(`+how+`(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'asyncflow'
			  AND (state = 'active' AND random() < 0.5 OR random() < 0.05)`).Scan(&some)
		if !assert.NoError(f.t, err) {
			return
		}
		n += some
		<-pause.C
	}
}

// If the database breaks off during the commit of a change, the answer says that the change may
// have been made. Before the commit, it says that nothing was changed.
func TestUnansweredChange(t *testing.T) {
	b := setup(t)
	b.pipe()
	for _, sql := range []string{
		`CREATE FUNCTION public.breaks_off() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
			'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'`,
		`CREATE CONSTRAINT TRIGGER breaks_off AFTER UPDATE ON tenant_acme.task_types
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.breaks_off()`,
	} {
		_, err := b.db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	a := b.call(http.MethodPost, "/v1/task-types/pipe/pause", "")
	require.Equal(t, 503, a.status)
	require.Equal(t, "uncertain", a.problem.Code, "%s", a.body)
	require.NotEmpty(t, a.header.Get("Retry-After"))

	for _, sql := range []string{
		`DROP TRIGGER breaks_off ON tenant_acme.task_types`,
		`CREATE TRIGGER breaks_off AFTER UPDATE ON tenant_acme.task_types
			FOR EACH ROW EXECUTE FUNCTION public.breaks_off()`,
	} {
		_, err := b.db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	a = b.call(http.MethodPost, "/v1/task-types/pipe/pause", "")
	require.Equal(t, 503, a.status)
	require.Equal(t, "unavailable", a.problem.Code, "%s", a.body)
}
