package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// A worker chooses how its task goes on. What the type doesn't allow is refused, and changes
// nothing: the worker may report again.
func TestNextStageReport(t *testing.T) {
	b := setup(t)
	spec := `{"max_steps":3,"stages":[{"name":"fetch","next":["review","finish"]},{"name":"store"},` +
		`{"name":"review","next":["fetch","finish"]}]}`
	stored := read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/pipe", spec))
	require.Equal(t, 3, stored.MaxSteps)
	require.Equal(t, []string{"review", "finish"}, stored.Stages[0].Next)
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID
	path := "/v1/callbacks/" + id + "/complete"
	_, token := b.lease()
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"next_stage":"store"}`:                {422, `"code":"invalid_next_stage"`},
		`{"finish":true,"next_stage":"review"}`: {400, "exclude each other"},
		`{"output":1}`:                          {422, `next_stage is missing after stage \"fetch\"`},
		`{"next_stage":"a\u0000b"}`:             {400, "next_stage must be UTF-8 without NUL"},
		`{"next_stage":1}`:                      {400, "next_stage"},
	} {
		t.Run(body, func(t *testing.T) {
			a := b.callAs(token, "POST", path, body)
			require.Equal(t, want.status, a.status, string(a.body))
			require.Contains(t, string(a.body), want.text)
		})
	}
	for range 2 {
		require.Equal(t, asyncflow.StatusPending, read[api.CallbackResult](b, 200,
			b.callAs(token, "POST", path, `{"output":2,"next_stage":"review"}`)).Status)
	}
	for _, body := range []string{`{"output":2,"finish":true}`, `{"output":2,"next_stage":"fetch"}`} {
		require.Equal(t, 409, b.callAs(token, "POST", path, body).status)
	}
	_, second := b.lease()
	require.Equal(t, asyncflow.StatusPending, read[api.CallbackResult](b, 200,
		b.callAs(second, "POST", path, `{"next_stage":"fetch"}`)).Status)
	require.Equal(t, asyncflow.StatusPending, read[api.CallbackResult](b, 200,
		b.callAs(token, "POST", path, `{"output":2,"next_stage":"review"}`)).Status,
		"the report of the first visit is known still")
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	require.Equal(t, []api.Visit{{Stage: "fetch", Visit: 1, Attempts: 1},
		{Stage: "review", Visit: 1, Attempts: 1}, {Stage: "fetch", Visit: 2}}, task.Path)
	require.Equal(t, 3, task.Steps)
	_, third := b.lease()
	for range 2 {
		require.Equal(t, asyncflow.StatusFailed, read[api.CallbackResult](b, 200,
			b.callAs(third, "POST", path, `{"output":3,"next_stage":"review"}`)).Status)
	}
	task = read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	require.Equal(t, "it took 3 steps; max_steps is 3: fetch → review → fetch", task.Error)
	attempts := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	require.Equal(t, []string{"review", "fetch", ""}, []string{attempts[0].NextStage,
		attempts[1].NextStage, attempts[2].NextStage})

	read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+id+"/redrive", ""))
	_, fourth := b.lease()
	require.Equal(t, asyncflow.StatusSucceeded, read[api.CallbackResult](b, 200,
		b.callAs(fourth, "POST", path, `{"output":4,"finish":true}`)).Status)
	require.JSONEq(t, `4`, string(read[api.Task](b, 200,
		b.call("GET", "/v1/tasks/"+id, "")).Result))
}
