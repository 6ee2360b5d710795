package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestPatchTask(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	patch := func(body string) answer { return b.call("PATCH", "/v1/tasks/"+id, body) }
	first := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))

	task := read[api.Task](b, 200, patch(`{"priority":[60,0]}`))
	assert.Equal(t, asyncflow.Priority{60, 0}, task.Priority)
	assert.Equal(t, first.OrderTime.Add(-time.Minute), task.OrderTime)

	task = read[api.Task](b, 200, patch(`{"delay":"1h"}`))
	assert.Equal(t, asyncflow.StatusWaiting, task.Status)
	assert.Equal(t, api.TaskWaitsFor("delay"), task.WaitsFor)
	assert.WithinDuration(t, time.Now().Add(time.Hour), task.OrderTime, time.Minute)

	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	task = read[api.Task](b, 200, patch(`{"run_at":"`+at.Format(time.RFC3339)+`"}`))
	assert.Equal(t, at, task.OrderTime.UTC())

	began := time.Now()
	task = read[api.Task](b, 200, patch(`{"delay":"0s"}`))
	assert.Equal(t, asyncflow.StatusPending, task.Status)
	assert.WithinRange(t, task.OrderTime, began.Add(-61*time.Second),
		time.Now().Add(-59*time.Second), "its head start counts again")

	attempts := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	require.Len(t, attempts, 4)
	for _, a := range attempts {
		assert.Equal(t, api.AttemptOutcome("changed"), a.Outcome)
	}
	for body, field := range map[string]string{
		`{}`:                "body",
		`{"priority":-1}`:   "priority",
		`{"delay":"8761h"}`: "delay",
		`{"delay":"-1s"}`:   "delay",
		`{"delay":"1h","run_at":"2027-01-01T00:00:00Z"}`: "delay",
		`{"run_at":"2099-01-01T00:00:00Z"}`:              "run_at",
		`{"run_at":"tomorrow"}`:                          "run_at",
		`{"key":"k"}`:                                    "key",
	} {
		a := patch(body)
		require.Equal(t, 400, a.status, "%s: %s", body, a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, "%s: %s", body, a.body)
	}
	b.lease()
	a := patch(`{"priority":1}`)
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "it is running")
	assert.Equal(t, 404, b.call("PATCH", "/v1/tasks/pipe.1.999999", `{"priority":1}`).status)
}
