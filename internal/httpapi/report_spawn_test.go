package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// spawning puts types, one of them to start tasks, and returns a task of it with its token.
func (b *bundle) spawning() (id, path, token string) {
	b.t.Helper()
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/report",
		`{"stages":[{"name":"only"},{"name":"last"}],"retention":"1h"}`))
	stored := read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"only","spawn":["report","pipe","missing"]}]}`))
	require.Equal(b.t, []string{"report", "pipe", "missing"}, stored.Stages[0].Spawn)
	id = read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", oneTask)).ID
	_, token = b.lease()
	return id, "/v1/callbacks/" + id + "/complete", token
}

// A report starts tasks if their types are allowed. One that is refused changes nothing: the worker
// may report again.
func TestSpawnReport(t *testing.T) {
	b := setup(t)
	id, path, token := b.spawning()
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"spawn":[{"type":"reprot","context":1}]}`: {422, `"code":"invalid_spawn"`},
		`{"spawn":[{"type":"missing","context":1}]}`: {422,
			`spawn[0].type \"missing\" doesn't exist`},
		`{"spawn":[{"type":"report"}]}`:                      {400, "spawn[0].context"},
		`{"spawn":[{"type":"report","context":1,"x":1}]}`:    {400, "spawn[0].x"},
		`{"spawn":[{"type":"report","context":1,"key":""}]}`: {400, "spawn[0].key"},
		`{"spawn":null}`: {400, "spawn"},
		`{"spawn":{"type":"report","context":1}}`: {400, "spawn"},
		`{"spawn":[{"type":"report","context":1,"key":"k","key_window":"2h"}]}`: {400,
			"spawn[0].key_window"},
		`{"spawn":[{"type":"report","context":1,"priority":[1,2,3]}]}`: {400, "priority"},
		`{"spawn":[{"type":"report","context":1,"claim":{"exclude":["a"]}}]}`: {400,
			"spawn[0].claim"},
		`{"spawn":[{"type":"report","context":1,"delay":"1s","run_at":"2030-01-01T00:00:00Z"}]}`: {400,
			"spawn[0].delay"},
	} {
		t.Run(body, func(t *testing.T) {
			a := b.callAs(token, "POST", path, body)
			require.Equal(t, want.status, a.status, string(a.body))
			require.Contains(t, string(a.body), want.text)
		})
	}
	const good = `{"output":2,"spawn":[{"type":"report","context":{"b":  1},"priority":[1,2],` +
		`"retry":{"max_attempts":2}},{"type":"pipe","context":3,"delay":"1h","key":"k"}]}`
	for range 2 {
		require.Equal(t, asyncflow.StatusSucceeded, read[api.CallbackResult](b, 200,
			b.callAs(token, "POST", path, good)).Status)
	}
	for _, other := range []string{`{"output":2}`,
		`{"output":2,"spawn":[{"type":"report","context":{"b":1}}]}`} {
		a := b.callAs(token, "POST", path, other)
		require.Equal(t, 409, a.status, string(a.body))
	}
	require.Eventually(t, func() bool {
		return len(read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Spawned) == 2
	}, patience, 20*time.Millisecond)
	require.Equal(t, []api.SpawnedCount{{Type: "pipe", Count: 1}, {Type: "report", Count: 1}},
		read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Spawned)
	for _, of := range []string{"pipe", "report"} {
		list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type="+of+"&parent="+id, ""))
		require.Len(t, list.Data, 1)
		require.Equal(t, id, list.Data[0].Parent)
		n := read[api.TaskCount](b, 200,
			b.call("GET", "/v1/tasks/count?type="+of+"&parent="+id, ""))
		require.EqualValues(t, 1, n.Count)
	}
}

// What would exceed a quota is refused as a submit is, and starts nothing.
func TestSpawnReportOverQuota(t *testing.T) {
	b := setup(t)
	id, path, token := b.spawning()
	const two = `{"spawn":[{"type":"report","context":"longer"},{"type":"report","context":2}]}`
	for quotas, name := range map[string]string{
		`{"children":1}`: "children", `{"pending_tasks":2}`: "pending_tasks",
		`{"context_bytes":7}`: "context_bytes"} {
		t.Run(quotas, func(t *testing.T) {
			b.quota(quotas)
			a := b.callAs(token, "POST", path, two)
			require.Equal(t, 403, a.status, string(a.body))
			require.Equal(t, "quota_exceeded", a.problem.Code)
			require.Equal(t, asyncflow.QuotaName(name), a.problem.Quota.Name)
			b.quota(`{"children":-1,"pending_tasks":-1,"context_bytes":-1}`)
		})
	}
	require.Equal(t, asyncflow.StatusRunning,
		read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Status)
	require.Empty(t, read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=report", "")).Data)
	read[api.CallbackResult](b, 200, b.callAs(token, "POST", path, two))
}

// The entries of spawn are counted before they are decoded, however its name is written.
func TestTooLongSpawnReport(t *testing.T) {
	b := setup(t)
	_, path, token := b.spawning()
	zeros := strings.Repeat("0,", asyncflow.MaxSpawn) + "0"
	for _, name := range []string{`"spawn"`, `"\u0073pawn"`, `"SPAWN"`, `"output":[{}],"spawn"`} {
		a := b.callAs(token, "POST", path, `{`+name+`:[`+zeros+`]}`)
		require.Equal(t, 400, a.status, name)
		require.Contains(t, string(a.body), "has more than 10000 entries", name)
	}
	a := b.callAs(token, "POST", path, `{"spawn":[`+zeros[2:]+`]}`)
	require.Contains(t, string(a.body), "spawn[0]", "it is decoded")
}

// A list of the latest children needs their parent.
func TestListOfLatestChildren(t *testing.T) {
	b := setup(t)
	id, _, _ := b.spawning()
	a := b.call("GET", "/v1/tasks?type=report&latest=true", "")
	require.Equal(t, 400, a.status)
	require.Contains(t, string(a.body), "latest needs parent")
	require.Empty(t, read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=report&latest=true&parent="+id, "")).Data)
}

// A report makes the task wait for the tasks that it starts. The next delivery carries their
// results.
func TestSpawnReportJoins(t *testing.T) {
	b := setup(t)
	id, path, token := b.spawning()
	for body, want := range map[string]string{
		`{"spawn":[{"type":"report","context":1}],"join":1}`:                          "join",
		`{"spawn":[{"type":"report","context":1}],"join":{"max_parallel":-1}}`:        "join.max_parallel is -1",
		`{"spawn":[{"type":"report","context":1}],"join":{"parallel":1}}`:             "join",
		`{"output":1,"spawn":[{"type":"report","context":1}],"join":true}`:            "output",
		`{"spawn":[{"type":"report","context":1}],"join":{"on_child_failure":"any"}}`: "join.on_child_failure",
	} {
		a := b.callAs(token, "POST", path, body)
		require.Equal(t, 400, a.status, string(a.body))
		require.Contains(t, string(a.body), want)
	}
	a := b.callAs(token, "POST", path,
		`{"spawn":[{"type":"report","context":1,"key":"k"}],"join":true}`)
	require.Equal(t, 422, a.status, string(a.body))
	require.Contains(t, string(a.body), "spawn[0].key can't be given with join")

	const good = `{"spawn":[{"type":"report","context":1}],"join":{"results":"settled"}}`
	for range 2 {
		require.Equal(t, asyncflow.StatusWaiting, read[api.CallbackResult](b, 200,
			b.callAs(token, "POST", path, good)).Status)
	}
	other := b.callAs(token, "POST", path, `{"spawn":[{"type":"report","context":1}],"join":true}`)
	require.Equal(t, 409, other.status, string(other.body))
	for range 2 {
		l, child := b.leaseOf("report")
		read[api.CallbackResult](b, 200, b.callAs(child, "POST",
			"/v1/callbacks/"+l.ID.String()+"/complete", `{"output":5}`))
		task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+l.ID.String(), ""))
		require.Equal(t, id, task.ChildOf.Parent)
		require.Equal(t, id, task.Parent)
	}
	require.Eventually(t, func() bool {
		return read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Status.Final()
	}, patience, 20*time.Millisecond)
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	require.Equal(t, asyncflow.StatusSucceeded, task.Status)
	require.Contains(t, string(task.Result), `"status":"succeeded"`)
	require.Contains(t, string(task.Result), `"output":5`)
	require.Equal(t, 1, task.Children.Succeeded)
	require.Len(t, read[api.ChildResults](b, 200,
		b.call("GET", "/v1/tasks/"+id+"/results", "")).Results, 1)
}
