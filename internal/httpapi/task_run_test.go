package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// callFrom is callAs from a worker with a name.
func (b *bundle) callFrom(worker, token, path, body string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST", b.url+path,
		strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set(asyncflow.WorkerHeader, worker)
	return b.do(req)
}

// attempts lists the attempts of a task.
func (b *bundle) attempts(id string) []api.Attempt {
	b.t.Helper()
	return read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
}

// found returns the ids of the tasks in a list with a filter.
func (b *bundle) found(filter string) (ids []string) {
	b.t.Helper()
	for _, task := range read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?"+filter, "")).Data {
		ids = append(ids, task.ID)
	}
	return ids
}

// A running task shows where it runs, and its journal keeps that.
func TestWhereATaskRuns(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	require.Nil(t, b.task(id).Run, "it is pending")
	l, token := b.lease()
	run := b.task(id).Run
	require.NotNil(t, run)
	assert.WithinDuration(t, l.LeasedAt, run.Since, time.Second)
	assert.Equal(t, api.TaskRun{Since: run.Since, WaitMs: run.WaitMs, Node: "node-1"}, *run)

	before := b.store.Clock.Now()
	require.Equal(t, 200, b.callFrom("worker-1", token, path+"/heartbeat", "").status)
	run = b.task(id).Run
	assert.Equal(t, "worker-1", run.Worker)
	assert.WithinRange(t, run.LastHeartbeat, before.Truncate(time.Microsecond),
		b.store.Clock.Now())
	for _, bad := range []string{"two words", strings.Repeat("w", 65), "gr\xf6\xdfe"} {
		require.Equal(t, 200, b.callFrom(bad, token, path+"/heartbeat", "").status)
		assert.Equal(t, "worker-1", b.task(id).Run.Worker, "%q is dropped", bad)
	}
	require.Equal(t, 200, b.callAs(token, "POST", path+"/heartbeat", "").status)
	assert.Equal(t, "worker-1", b.task(id).Run.Worker, "a call without a name leaves it")
	require.Equal(t, 200, b.callFrom("worker-2", token, path+"/progress",
		`{"percent":3}`).status)
	assert.Equal(t, "worker-2", b.task(id).Run.Worker)
	require.Equal(t, 200, b.callFrom("worker-3", token, path+"/heartbeat",
		`{"checkpoint":1}`).status)
	assert.Equal(t, "worker-3", b.task(id).Run.Worker)
	assert.Equal(t, []string{id}, b.found("worker=worker-3"))
	assert.Empty(t, b.found("worker=worker-2"), "another one has it now")

	b.rescue()
	assert.Nil(t, b.task(id).Run)
	require.Equal(t, 200, b.call("PATCH", "/v1/tasks/"+id, `{"delay":"0s"}`).status)
	_, token = b.lease()
	require.Equal(t, 200, b.callFrom("worker-4", token, path+"/complete", `{"output":1}`).status)
	all := b.attempts(id)
	require.Len(t, all, 3)
	for i, want := range []string{"lost worker-3 node-1", "changed  ", "done worker-4 node-1"} {
		assert.Equal(t, want, string(all[i].Outcome)+" "+all[i].Worker+" "+all[i].Node)
	}
	assert.Equal(t, []string{id}, b.found("worker=worker-3&type=pipe"), "whatever came after it")
	assert.Equal(t, []string{id}, b.found("worker=worker-4"))
	assert.Empty(t, b.found("worker=worker"), "the whole name")
	assert.Empty(t, b.found("worker=node-1"), "not the node")
}

// The filter by worker works in counts and changes of many tasks, and says what is wrong.
func TestFilterByWorker(t *testing.T) {
	b := setup(t)
	b.pipe()
	var ids []string
	for _, worker := range []string{"worker-1", "worker-2", "worker-1"} {
		id, path := b.submitOne()
		_, token := b.lease()
		require.Equal(t, 200, b.callFrom(worker, token, path+"/fail",
			`{"error":"no","retryable":false}`).status)
		ids = append(ids, id)
	}
	count := read[api.TaskCount](b, 200, b.call("GET", "/v1/tasks/count?worker=worker-1", ""))
	assert.Equal(t, 2, int(count.Count))
	o := read[api.Operation](b, 202, b.call("POST", "/v1/tasks/redrive",
		`{"type":"pipe","worker":"worker-1"}`))
	assert.Equal(t, "worker-1", o.Filter.Worker)
	assert.Equal(t, 2, int(b.carryOn(o).Done))
	for i, want := range []asyncflow.Status{"pending", "failed", "pending"} {
		assert.Equal(t, want, b.task(ids[i]).Status)
	}
	for call, a := range map[string]answer{
		"list":    b.call("GET", "/v1/tasks?worker=two%20words", ""),
		"count":   b.call("GET", "/v1/tasks/count?worker="+strings.Repeat("w", 65), ""),
		"redrive": b.call("POST", "/v1/tasks/redrive", `{"type":"pipe","worker":"ö"}`),
	} {
		require.Equal(t, 400, a.status, call)
		require.Equal(t, "worker", a.problem.Errors[0].Field, call)
	}
}

// A change of many tasks by worker waits for nodes that know it.
func TestFilterByWorkerBesideAnOlderNode(t *testing.T) {
	b := setup(t)
	b.pipe()
	_, err := b.db.Exec(t.Context(), `INSERT INTO asyncflow.nodes
		(id, roles, version, started_at, seen_at, knows)
		VALUES ('old', 'api', '0.0.9', now(), now() + interval '1 h', '{deliver}')`)
	require.NoError(t, err)
	for call, more := range map[string]string{"cancel": "", "redrive": "", "count": "",
		"priority": `,"priority":5`, "delay": `,"delay":"1h"`, "rerun": `,"status":"failed"`} {
		a := b.call("POST", "/v1/tasks/"+call, `{"type":"pipe","worker":"worker-1"`+more+`}`)
		require.Equal(t, 409, a.status, "%s: %s", call, a.body)
		require.Contains(t, a.problem.Detail, "it uses workers")
	}
	require.Equal(t, 200, b.call("GET", "/v1/tasks?worker=worker-1", "").status)
}

// A claim bears the name of the worker that asked. Its late reports still belong to its claimer.
func TestWorkerOfAClaim(t *testing.T) {
	b := setup(t)
	b.claimed()
	id := b.submitJudge(1)[0]
	token, err := b.issuer.Issue("acme", "anna", []auth.Scope{auth.ScopeWork}, time.Hour,
		time.Now())
	require.NoError(t, err)
	a := b.callFrom("worker-1", token, "/v1/claims",
		`{"type":"judge","stage":"look","claimer":"anna"}`)
	claims := read[api.ClaimList](b, 200, a).Claims
	require.Len(t, claims, 1)
	run := b.task(id).Run
	require.NotNil(t, run)
	assert.Equal(t, "anna worker-1 node-1", run.Claimer+" "+run.Worker+" "+run.Node)
	assert.Empty(t, run.Endpoint)

	b.runOut("judge")
	all := b.attempts(id)
	require.Len(t, all, 1)
	assert.Equal(t, "released anna anna worker-1", string(all[0].Outcome)+" "+all[0].Claimer+" "+
		all[0].Subject+" "+all[0].Worker)
	for range 2 { // a late report, and the same again
		a := b.callFrom("worker-1", claims[0].Callback.Token, "/v1/callbacks/"+id+"/complete", `{}`)
		require.Equal(t, 200, a.status, "%s", a.body)
	}
	all = b.attempts(id)
	require.Len(t, all, 2)
	assert.Equal(t, "done anna anna worker-1", string(all[1].Outcome)+" "+all[1].Claimer+" "+
		all[1].Subject+" "+all[1].Worker)
	assert.Empty(t, all[1].Endpoint)
}

// Two names make no call fail.
func TestTwoNamesOfAWorker(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	_, token := b.lease()
	req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+path+"/snooze",
		strings.NewReader(`{"retry_after":"60s"}`))
	require.NoError(t, err)
	req.Header = http.Header{"Authorization": {"Bearer " + token},
		"Content-Type": {"application/json"}, asyncflow.WorkerHeader: {"worker-1", "worker-2"}}
	a := b.do(req)
	require.Equal(t, 200, a.status, "%v", a)
	require.Equal(t, "worker-1", b.attempts(id)[0].Worker)
}
