package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// A worker reports that a task isn't ready yet: it waits, and the same report again is no error.
func TestSnoozeReport(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID
	path := "/v1/callbacks/" + id
	_, token := b.lease()
	for body, message := range map[string]string{
		`{}`:                              "retry_after",
		`{"retry_after":"0.5s"}`:          "it must be 1s to 720h",
		`{"retry_after":"721h"}`:          "it must be 1s to 720h",
		`{"retry_after":"1m","output":1}`: "output",
	} {
		t.Run(body, func(t *testing.T) {
			a := b.callAs(token, "POST", path+"/snooze", body)
			require.Equal(t, 400, a.status)
			require.Contains(t, string(a.body), message)
		})
	}
	for range 2 {
		require.Equal(t, asyncflow.StatusWaiting, read[api.CallbackResult](b, 200,
			b.callAs(token, "POST", path+"/snooze",
				`{"retry_after":"5m","error":"no label yet"}`)).Status)
	}
	require.Equal(t, 409, b.callAs(token, "POST", path+"/complete", `{}`).status)
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	require.Equal(t, []any{api.TaskWaitsFor("snooze"), 1, "no label yet"},
		[]any{task.WaitsFor, task.Attempt, task.Error})
	attempts := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	require.Equal(t, api.AttemptOutcome("snoozed"), attempts[0].Outcome)
	stats := read[api.StatsList](b, 200, b.call("GET", "/v1/stats?type=pipe", "")).Data
	require.Positive(t, stats[0].Rates.Snoozes)
	require.Zero(t, stats[0].Rates.Failures)
}
