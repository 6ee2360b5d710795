package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestTaskTypes(t *testing.T) {
	b := setup(t)
	spec := `{"stages":[{"name":"only","timeout":"5s","priority":60}],"schedule_limit":10}`
	made := read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/pipe", spec))
	assert.Equal(t, 1, made.Version)
	assert.Equal(t, asyncflow.DefaultRetry, made.Stages[0].Retry, "defaults are filled in")
	again := read[api.TaskType](b, 200, b.call("PUT", "/v1/task-types/pipe", spec))
	assert.Equal(t, made, again)
	got := read[api.TaskType](b, 200, b.call("GET", "/v1/task-types/pipe", ""))
	assert.Equal(t, made, got)
	list := read[api.TaskTypeList](b, 200, b.call("GET", "/v1/task-types", ""))
	assert.Equal(t, []api.TaskType{made}, list.Data)
	assert.Equal(t, http.StatusNoContent, b.call("DELETE", "/v1/task-types/pipe", "").status)
	assert.Equal(t, http.StatusNotFound, b.call("GET", "/v1/task-types/pipe", "").status)
}

func TestPauseTaskType(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	paused := read[api.TaskType](b, 200,
		b.call("POST", "/v1/task-types/pipe/pause", `{"reason":"new worker"}`))
	assert.Equal(t, "new worker", paused.PauseReason)
	assert.WithinDuration(t, time.Now(), paused.PausedAt, time.Minute)
	assert.Equal(t, paused, read[api.TaskType](b, 200, b.call("GET", "/v1/task-types/pipe", "")))
	assert.Equal(t, api.TaskWaitsFor("paused"),
		read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).WaitsFor)

	resumed := read[api.TaskType](b, 200,
		b.call("POST", "/v1/task-types/pipe/resume", `{"ramp":"10m"}`))
	assert.Zero(t, resumed.PausedAt)
	assert.Empty(t, resumed.PauseReason)
	assert.WithinDuration(t, time.Now().Add(10*time.Minute), resumed.RampUntil, time.Minute)
	assert.Equal(t, paused.Version, resumed.Version)

	a := b.call("POST", "/v1/task-types/pipe/resume", `{"ramp":"25h"}`)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "ramp is 25h0m0s; it must be 0s to 24h0m0s", a.problem.Detail)
	for _, act := range []string{"pause", "resume"} {
		assert.Equal(t, 404, b.call("POST", "/v1/task-types/nope/"+act, "").status)
		assert.Equal(t, 403, b.callAs(b.newToken("acme", "read", "submit"), "POST",
			"/v1/task-types/pipe/"+act, "").status)
	}
}

func TestPutTaskTypeForShow(t *testing.T) {
	b := setup(t)
	const path = "/v1/task-types/pipe"
	would := read[api.TaskType](b, 201,
		b.call("PUT", path+"?dry_run=true", `{"stages":[{"name":"first"}]}`))
	assert.Equal(t, 1, would.Version)
	assert.Equal(t, 404, b.call("GET", path, "").status)

	b.pipe()
	b.submitOne()
	without := `{"stages":[{"name":"second"}]}`
	assert.Equal(t, 409, b.call("PUT", path+"?dry_run=true", without).status)
	mapped := `{"stages":[{"name":"second"}],"stage_mapping":{"first":"second"}}`
	would = read[api.TaskType](b, 200, b.call("PUT", path+"?dry_run=true", mapped))
	assert.Equal(t, 2, would.Version)
	assert.Equal(t, map[string]string{"first": "second"}, would.StageMapping)
	assert.Equal(t, 1, read[api.TaskType](b, 200, b.call("GET", path, "")).Version)
	assert.Equal(t, would.StageMapping,
		read[api.TaskType](b, 200, b.call("PUT", path, mapped)).StageMapping)

	a := b.call("PUT", path, `{"stages":[{"name":"second"}],"stage_mapping":{"first":"third"}}`)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, `stage_mapping.first is "third", which is not a stage`, a.problem.Detail)
}

// A type with schedules is deleted only with them.
func TestDeleteATypeWithSchedules(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/schedules/hourly",
		`{"type":"pipe","context":{},"cron":"@hourly"}`).status)
	a := b.call("DELETE", "/v1/task-types/pipe", "")
	require.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "hourly")
	require.Equal(t, 200, b.call("GET", "/v1/schedules/hourly", "").status)
	require.Equal(t, 204, b.call("DELETE", "/v1/task-types/pipe?cascade=true", "").status)
	require.Equal(t, 404, b.call("GET", "/v1/schedules/hourly", "").status)
}
