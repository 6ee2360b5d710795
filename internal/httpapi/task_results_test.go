package httpapi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// leaseOf leases the next task of a type, like a dispatcher.
func (b *bundle) leaseOf(name string) (l asyncflow.Lease, token string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		t, err := b.store.Catalog.Type("acme", name)
		require.NoError(b.t, err)
		leases, _, err := b.store.Lease(b.t.Context(), t, 1)
		if err != nil || len(leases) == 0 {
			return false
		}
		l = leases[0]
		return true
	}, patience, 20*time.Millisecond)
	return l, b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID, Seq: l.Seq,
		Expiry: time.Now().Add(time.Hour)})
}

// parent submits a task that waits for two children.
func (b *bundle) parent() (id string) {
	b.t.Helper()
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/tree",
		`{"stages":[{"name":"map","fan_out":{"items":"/n","on_child_failure":"all_settled"}},
		  {"name":"reduce"}]}`))
	for _, stage := range []string{"map", "reduce"} {
		require.Equal(b.t, 201, b.call("POST", "/v1/endpoints",
			`{"type":"tree","stage":"`+stage+`","url":"https://worker.example/`+stage+`"}`).status)
	}
	id = read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"tree","context":{"n":[10,20]}}`)).ID
	b.fanOut("tree")
	return id
}

// fanOut makes the next task of a type fan out, as a dispatcher does.
func (b *bundle) fanOut(name string) {
	b.t.Helper()
	l, _ := b.leaseOf(name)
	t, err := b.store.Catalog.Type("acme", name)
	require.NoError(b.t, err)
	rule := *t.FansOut(l)
	work, err := rule.Spread(l.Context)
	require.NoError(b.t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: rule, Count: work.Count}}
	require.NoError(b.t, b.store.SettleAgain(b.t.Context(), t, []*store.Ending{{
		Settlement: &asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(t.TaskType, l, o, b.store.Clock.Now())}}}))
}

// The results of children are read by the deliveries with contexts that may hold their URL (of the
// next stage, of children, of dependents), and by callers who may read tasks.
func TestResultsOfChildren(t *testing.T) {
	b := setup(t)
	id := b.parent()
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/after",
		`{"stages":[{"name":"only"}]}`))
	require.Equal(t, 201, b.call("POST", "/v1/endpoints",
		`{"type":"after","stage":"only","url":"https://worker.example/after"}`).status)
	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"after","context":1,"depends_on":[{"task":"`+id+`"}]}`))
	for range 2 {
		child, token := b.leaseOf("tree")
		path := "/v1/callbacks/" + child.ID.String()
		assert.Equal(t, 200, b.callAs(token, "GET", "/v1/tasks/"+id+"/results", "").status)
		if child.Options.Child.Index == 0 {
			require.Equal(t, 200, b.callAs(token, "POST", path+"/complete",
				`{"output":`+string(child.Context)+`}`).status)
		} else {
			require.Equal(t, 200, b.callAs(token, "POST", path+"/fail",
				`{"error":"no","retryable":false}`).status)
		}
	}
	next, token := b.leaseOf("tree")
	assert.Equal(t, id, next.ID.String())
	assert.Equal(t, `{"count":2,"succeeded":1,"failed":1,"cancelled":0,"results":[10,null]}`,
		string(next.Context))
	path := "/v1/tasks/" + id + "/results"
	all := read[api.ChildResults](b, 200, b.callAs(token, "GET", path+"?fan_out=2", ""))
	require.Len(t, all.Results, 2)
	assert.Equal(t, 2, all.Count)
	assert.Equal(t, "10", string(all.Results[0].Output))
	assert.Equal(t, asyncflow.StatusFailed, all.Results[1].Status)
	assert.Equal(t, "no", all.Results[1].Error)
	one := read[api.ChildResults](b, 200, b.callAs(token, "GET", path+"?limit=1", ""))
	assert.Equal(t, 1, one.Next)
	assert.Len(t, one.Results, 1)
	assert.Equal(t, 404, b.callAs(token, "GET", path+"?fan_out=7", "").status)

	reader := b.newToken("acme", auth.ScopeRead)
	assert.Len(t, read[api.ChildResults](b, 200, b.callAs(reader, "GET", path, "")).Results, 2)
	assert.Equal(t, 403, b.callAs(b.newToken("acme", auth.ScopeSubmit), "GET", path, "").status)
	assert.Equal(t, 404, b.callAs(callbacks.TestToken, "GET", path, "").status)
	stranger := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"after","context":2}`)).ID
	_, other := b.leaseOf("after")
	refused := b.callAs(other, "GET", path, "")
	assert.Equal(t, 403, refused.status)
	assert.Contains(t, string(refused.body), "the delivery is of task "+stranger)
	assert.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+id+"/complete", "").status)
	assert.Equal(t, 409, b.callAs(token, "GET", path, "").status, "the attempt is over")
	dependent, token := b.leaseOf("after")
	assert.NotEqual(t, stranger, dependent.ID.String())
	assert.Len(t, read[api.ChildResults](b, 200, b.callAs(token, "GET", path, "")).Results, 2)

	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.Equal(t, &api.Children{Total: 2, Succeeded: 1, Failed: 1}, task.Children)
	list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=tree&parent="+id, ""))
	require.Len(t, list.Data, 2)
	assert.Equal(t, &api.ChildOf{Parent: id, Index: 1, Count: 2}, list.Data[0].ChildOf)
}

// A vote is cast without knowing the other votes, but the context may hold the URL of other results
// of its parent. While the tenant is suspended, no delivery opens results.
func TestAVoteCanNotReadTheOthers(t *testing.T) {
	b := setup(t)
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"map","fan_out":{"items":"/n"}},
		  {"name":"look","mode":"claim","quorum":{"votes":2,"max_votes":2}}]}`))
	require.Equal(t, 201, b.call("POST", "/v1/endpoints",
		`{"type":"judge","stage":"map","url":"https://worker.example/map"}`).status)
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"judge","context":{"n":[10]}}`)).ID
	b.fanOut("judge")
	child, token := b.leaseOf("judge")
	require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+child.ID.String()+"/complete",
		`{"output":"mapped"}`).status)
	b.fanOut("judge")
	anna := b.claim("anna", `,"wait":"1m"`)[0]
	require.Equal(t, 200, b.report(anna, "complete", `{"output":"cat"}`).status)
	bob := b.claim("bob", `,"wait":"1m"`)[0]
	require.Equal(t, id, bob.FanOut.Parent)

	path := "/v1/tasks/" + id + "/results"
	all := read[api.ChildResults](b, 200, b.call("GET", path, ""))
	assert.Equal(t, 2, all.Count)
	latest, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)
	parent, err := asyncflow.ParseTaskID(id)
	require.NoError(t, err)
	votes := 0
	for seq := range 9 {
		is, err := b.store.IsVote(t.Context(), latest, parent, seq)
		require.NoError(t, err)
		if is {
			votes++
			refused := b.callAs(bob.Callback.Token, "GET",
				fmt.Sprintf("%s?fan_out=%d", path, seq), "")
			assert.Equal(t, []any{403, string(asyncflow.CodeForbidden)},
				[]any{refused.status, refused.problem.Code}, seq)
			assert.NotContains(t, string(refused.body), "cat")
		}
	}
	assert.Equal(t, 2, votes, "the latest fan-out, and the same by its seq")
	assert.Equal(t, 403, b.callAs(bob.Callback.Token, "GET", path, "").status)
	mapped := read[api.ChildResults](b, 200,
		b.callAs(bob.Callback.Token, "GET", path+"?fan_out=2", ""))
	require.Len(t, mapped.Results, 1)
	assert.Equal(t, `"mapped"`, string(mapped.Results[0].Output))

	require.Equal(t, 200, b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme",
		`{"suspended":true,"reason":"unpaid"}`).status)
	refused := b.callAs(bob.Callback.Token, "GET", path+"?fan_out=2", "")
	assert.Equal(t, []any{403, "tenant_suspended"}, []any{refused.status, refused.problem.Code})
	assert.Equal(t, 200, b.report(bob, "complete", `{"output":"cat"}`).status, "reports count")
}
