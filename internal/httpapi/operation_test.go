package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// carryOn does the work of the background job until the end of an operation.
func (b *bundle) carryOn(o api.Operation) api.Operation {
	b.t.Helper()
	for {
		step, err := b.store.StepOperation(b.t.Context(),
			store.DueOperation{Tenant: "acme", Type: o.Type, ID: o.ID},
			b.committer.Submit)
		require.NoError(b.t, err)
		if step.Next.IsZero() {
			return read[api.Operation](b, 200, b.call("GET", "/v1/operations/"+o.ID, ""))
		}
	}
}

func TestBulkRedrive(t *testing.T) {
	b := setup(t)
	b.pipe()
	first, second := b.failSecond(), b.failSecond()
	assert.EqualValues(t, 2, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/redrive", `{"type":"pipe","dry_run":true}`)).Count)
	assert.EqualValues(t, 0, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/redrive",
			`{"type":"pipe","status":"cancelled","dry_run":true}`)).Count)
	assert.EqualValues(t, 2, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/redrive",
			`{"type":"pipe","stage":"second","error":"NO","dry_run":true}`)).Count)
	o := read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/redrive", `{"type":"pipe","from_stage":"first","pace":0.1}`))
	assert.Equal(t, []any{api.OperationKind("redrive"), "pipe", api.OperationState("running"),
		int64(2), int64(0), float32(0.1)},
		[]any{o.Kind, o.Type, o.State, o.Total, o.Done, o.Pace})
	assert.Zero(t, o.FinishedAt)
	_, err := b.store.StepOperation(t.Context(),
		store.DueOperation{Tenant: "acme", Type: "pipe", ID: o.ID},
		b.committer.Submit)
	require.NoError(t, err)
	o = read[api.Operation](b, 200, b.call("POST", "/v1/operations/"+o.ID+"/stop", ""))
	assert.Equal(t, []any{api.OperationState("stopped"), int64(1)}, []any{o.State, o.Done})
	assert.Equal(t, o, read[api.Operation](b, 200,
		b.call("POST", "/v1/operations/"+o.ID+"/stop", "")),
		"again changes nothing")

	o = b.carryOn(read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/redrive", `{"type":"pipe"}`)))
	assert.Equal(t, []any{api.OperationState("done"), int64(1), int64(1), int64(0)},
		[]any{o.State, o.Total, o.Done, o.Skipped})
	stages := map[string]string{first: "first", second: "second"}
	for id, stage := range stages {
		task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
		assert.Equal(t, []any{asyncflow.StatusPending, stage}, []any{task.Status, task.Stage})
	}
	list := read[api.OperationList](b, 200, b.call("GET", "/v1/operations", "")).Data
	require.Len(t, list, 2)
	assert.Equal(t, o, list[0], "newest first")
}

// A redrive of all types that failed lately with a code, as an operator does after an outage.
func TestBulkRedriveOfAllTypes(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.failSecond()
	id, path := b.submitOne()
	_, token := b.lease()
	require.Equal(t, 200, b.callAs(token, "POST", path+"/fail",
		`{"error":"card_declined: no funds","retryable":false}`).status)
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/other", `{"stages":[{"name":"one"}]}`).status)
	for query, want := range map[string]int{"": 2, "&code=card_declined": 1, "&code=card": 0,
		"&ended_until=2026-01-01T00:00:00Z": 0} {
		list := read[api.TaskList](b, 200,
			b.call("GET", "/v1/tasks?status=failed&ended_since=2025-01-01T00:00:00Z"+query, ""))
		assert.Len(t, list.Data, want, query)
	}
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.Equal(t, "card_declined", task.ErrorCode)
	journal := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	assert.Equal(t, "card_declined", journal[len(journal)-1].ErrorCode)
	o := b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/redrive",
		`{"all_types":true,"code":"card_declined","ended_since":"2025-01-01T00:00:00Z"}`)))
	assert.Equal(t, []any{"pipe", true, "card_declined", int64(1), int64(1), false},
		[]any{o.Type, o.Filter.AllTypes, o.Filter.Code, o.Total, o.Done,
			o.Filter.EndedSince.IsZero()})
}

// Pages of all types go on where the page before ended.
func TestListOfAllTypes(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/other", `{"stages":[{"name":"one"}]}`).status)
	for range 2 {
		for _, name := range []string{"pipe", "other"} {
			require.Equal(t, 201, b.call("POST", "/v1/tasks",
				`{"type":"`+name+`","context":1}`).status)
		}
	}
	var types []string
	for cursor := ""; ; {
		page := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?limit=1&cursor="+cursor, ""))
		for _, task := range page.Data {
			types = append(types, task.Type)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
		assert.Equal(t, 400, b.call("GET", "/v1/tasks?type=pipe&cursor="+cursor, "").status,
			"it is a cursor of another list")
		require.Less(t, len(types), 5)
	}
	assert.Equal(t, []string{"other", "other", "pipe", "pipe"}, types)
	assert.Equal(t, 400, b.call("GET", "/v1/tasks?cursor=abc", "").status)
}

func TestBulkCancel(t *testing.T) {
	b := setup(t)
	b.pipe()
	for i := range 5 {
		read[api.SubmittedTask](b, 201,
			b.call("POST", "/v1/tasks", fmt.Sprintf(`{"type":"pipe","context":%d,"delay":"%dh"}`, i,
				i%2)))
	}
	assert.EqualValues(t, 5, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/cancel", `{"type":"pipe","dry_run":true}`)).Count)
	o := read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/cancel",
			`{"type":"pipe","status":"waiting","reason":"too late"}`))
	assert.EqualValues(t, 2, b.carryOn(o).Done)
	b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/cancel", `{"type":"pipe"}`)))
	errors := map[string]int{}
	for _, task := range read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&status=cancelled", "")).Data {
		errors[task.Error]++
	}
	assert.Equal(t, map[string]int{"too late": 2, "cancelled by test": 3}, errors)
	assert.Len(t, read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&error=TOO&stage=first", "")).Data, 2)
	assert.Empty(t, read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&error=TOO&stage=second", "")).Data)
	o = read[api.Operation](b, 202, b.call("POST", "/v1/tasks/cancel", `{"type":"pipe"}`))
	assert.Equal(t, api.OperationState("done"), o.State, "nothing is left to cancel")
}

func TestBulkPriority(t *testing.T) {
	b := setup(t)
	b.pipe()
	for i := range 4 {
		read[api.SubmittedTask](b, 201,
			b.call("POST", "/v1/tasks", fmt.Sprintf(`{"type":"pipe","context":%d,"delay":"%dh"}`, i,
				i%2)))
	}
	assert.EqualValues(t, 4, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/priority", `{"type":"pipe","priority":60,"dry_run":true}`)).Count)
	o := read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/priority", `{"type":"pipe","priority":60,"status":"waiting"}`))
	assert.Equal(t, api.OperationKind("priority"), o.Kind)
	assert.EqualValues(t, 2, b.carryOn(o).Done)
	b.carryOn(read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/priority",
			`{"type":"pipe","priority":[7,9],"status":"pending"}`)))
	priorities := map[asyncflow.Status]asyncflow.Priority{}
	for _, task := range read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", "")).Data {
		priorities[task.Status] = task.Priority
	}
	assert.Equal(t, map[asyncflow.Status]asyncflow.Priority{asyncflow.StatusWaiting: {60},
		asyncflow.StatusPending: {7, 9}}, priorities)
}

func TestBulkDelay(t *testing.T) {
	b := setup(t)
	b.pipe()
	for i := range 4 {
		read[api.SubmittedTask](b, 201,
			b.call("POST", "/v1/tasks", fmt.Sprintf(`{"type":"pipe","context":%d,"delay":"%dh"}`, i,
				i%2)))
	}
	assert.EqualValues(t, 4, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/delay", `{"type":"pipe","delay":"2h","dry_run":true}`)).Count)
	o := read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/delay", `{"type":"pipe","delay":"2h","status":"pending"}`))
	assert.Equal(t, api.OperationKind("delay"), o.Kind)
	assert.EqualValues(t, 2, b.carryOn(o).Done)
	assert.Len(t, read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&status=waiting", "")).Data, 4)
	b.carryOn(read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/delay", `{"all_types":true,"run_at":"2026-01-01T00:00:00Z"}`)))
	assert.Len(t, read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&status=pending", "")).Data, 4, "a past time is at once")
}

func TestOperationsRefused(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	for _, c := range []struct {
		path, body string
		status     int
		field      string
	}{
		{"/v1/tasks/cancel", `{}`, 400, "type"},
		{"/v1/tasks/cancel", `{"type":"nope"}`, 404, "type"},
		{"/v1/tasks/cancel", `{"all_types":false}`, 400, "type"},
		{"/v1/tasks/cancel", `{"type":"pipe","all_types":true}`, 400, "all_types"},
		{"/v1/tasks/cancel", `{"type":"pipe","ended_since":"2026-11-21T00:00:00Z"}`, 400,
			"ended_since"},
		{"/v1/tasks/redrive", `{"type":"pipe","parent":"x"}`, 400, "parent"},
		{"/v1/tasks/redrive", `{"type":"pipe","parent":"nope.1.1"}`, 400, "parent"},
		{"/v1/tasks/redrive", `{"type":"pipe","code":"a b"}`, 400, "code"},
		{"/v1/tasks/redrive", `{"type":"pipe","attempts":0}`, 400, "attempts"},
		{"/v1/tasks/redrive", `{"all_types":true,"from_stage":"first"}`, 400, "from_stage"},
		{"/v1/tasks/cancel", `{"type":"pipe","status":"failed"}`, 400, "status"},
		{"/v1/tasks/cancel", `{"type":"pipe","pace":0}`, 400, "pace"},
		{"/v1/tasks/cancel", `{"type":"pipe","stage":"Not a name"}`, 400, "stage"},
		{"/v1/tasks/cancel", `{"type":"pipe","error":"a\u0000b"}`, 400, "error"},
		{"/v1/tasks/cancel", `{"type":"pipe","since":"yesterday"}`, 400, "since"},
		{"/v1/tasks/cancel", `{"type":"pipe","since":"2026-11-21T00:00:00Z",` +
			`"until":"2026-11-20T00:00:00Z"}`, 400, "until"},
		{"/v1/tasks/cancel", `{"type":"pipe","from_stage":"first"}`, 400, "from_stage"},
		{"/v1/tasks/priority", `{"type":"pipe"}`, 400, "priority"},
		{"/v1/tasks/priority", `{"type":"pipe","priority":-1}`, 400, "priority"},
		{"/v1/tasks/priority", `{"type":"pipe","priority":[1,2,3]}`, 400, "priority"},
		{"/v1/tasks/priority", `{"type":"pipe","priority":1,"status":"running"}`, 400, "status"},
		{"/v1/tasks/priority", `{"type":"nope","priority":1}`, 404, "type"},
		{"/v1/tasks/delay", `{"type":"pipe"}`, 400, "delay"},
		{"/v1/tasks/delay", `{"type":"pipe","delay":"-1s"}`, 400, "delay"},
		{"/v1/tasks/delay", `{"type":"pipe","delay":"366d"}`, 400, "delay"},
		{"/v1/tasks/delay", `{"type":"pipe","delay":"1h","run_at":"2026-11-21T00:00:00Z"}`, 400,
			"delay"},
		{"/v1/tasks/delay", `{"type":"pipe","run_at":"2099-01-01T00:00:00Z"}`, 400, "run_at"},
		{"/v1/tasks/delay", `{"type":"pipe","delay":"1h","status":"running"}`, 400, "status"},
		{"/v1/tasks/delay", `{"type":"nope","delay":"1h"}`, 404, "type"},
		{"/v1/tasks/rerun", `{"type":"pipe","status":"running"}`, 400, "status"},
		{"/v1/tasks/rerun", `{"type":"pipe"}`, 400, "status"},
		{"/v1/tasks/rerun", `{"all_types":true,"code":"503"}`, 400, "status"},
		{"/v1/tasks/rerun", `{"type":"pipe","status":"failed","children":true}`, 400, "children"},
		{"/v1/tasks/rerun", `{"type":"pipe","status":"failed","context":1}`, 400, "context"},
		{"/v1/tasks/rerun", `{"type":"nope","status":"failed"}`, 404, "type"},
		{"/v1/tasks/redrive", `{"type":"pipe","status":"running"}`, 400, "status"},
		{"/v1/tasks/redrive", `{"type":"pipe","from_stage":"third"}`, 400, "from_stage"},
		{"/v1/tasks/redrive", `{"type":"pipe","from_stage":"third","dry_run":true}`, 400,
			"from_stage"},
		{"/v1/tasks/redrive", `{"type":"pipe","error":"a\u0000b"}`, 400, "error"},
		{"/v1/tasks/redrive", `{"type":"pipe","pace":1000000}`, 400, "pace"},
	} {
		a := b.call("POST", c.path, c.body)
		require.Equal(t, c.status, a.status, "%s %s: %s", c.path, c.body, a.body)
		require.NotEmpty(t, a.problem.Errors, "%s: %s", c.body, a.body)
		assert.Equal(t, c.field, a.problem.Errors[0].Field, c.body)
	}
	a := b.call("GET", "/v1/tasks?type=pipe&error=a%00b", "")
	require.Equal(t, 400, a.status)
	assert.Equal(t, "error", a.problem.Errors[0].Field)
	for _, id := range []string{"x", "01890a5d-ac96-774b-bcce-b302099a8057"} {
		assert.Equal(t, 404, b.call("GET", "/v1/operations/"+id, "").status)
		assert.Equal(t, 404, b.call("POST", "/v1/operations/"+id+"/stop", "").status)
	}
	assert.Empty(t, read[api.OperationList](b, 200, b.call("GET", "/v1/operations", "")).Data,
		"none of them began")
	assert.JSONEq(t, `{"data":[]}`, string(b.call("GET", "/v1/operations", "").body))

	reader := b.newToken("acme", auth.ScopeRead)
	assert.Equal(t, 403, b.callAs(reader, "POST", "/v1/tasks/cancel", `{"type":"pipe"}`).status)
	assert.Equal(t, 403, b.callAs(reader, "POST", "/v1/tasks/redrive", `{"type":"pipe"}`).status)
	assert.Equal(t, 403,
		b.callAs(reader, "POST", "/v1/tasks/priority", `{"type":"pipe","priority":1}`).status)
	assert.Equal(t, 403,
		b.callAs(reader, "POST", "/v1/tasks/delay", `{"type":"pipe","delay":"0s"}`).status)
	assert.Equal(t, 403, b.callAs(reader, "POST", "/v1/tasks/rerun",
		`{"type":"pipe","status":"failed"}`).status)
	assert.Equal(t, 403, b.callAs(reader, "POST", "/v1/operations/x/stop", "").status)
	assert.Equal(t, 200, b.callAs(reader, "GET", "/v1/operations", "").status)
	operator := b.newToken("acme", auth.ScopeOperate)
	assert.Equal(t, 202, b.callAs(operator, "POST", "/v1/tasks/cancel", `{"type":"pipe"}`).status)
	assert.Equal(t, 403, b.callAs(operator, "GET", "/v1/operations", "").status)
	other := b.newToken("other", auth.ScopeRead)
	assert.Empty(t, read[api.OperationList](b, 200,
		b.callAs(other, "GET", "/v1/operations", "")).Data)
}
