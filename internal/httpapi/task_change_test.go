package httpapi_test

import (
	"encoding/json"
	"fmt"
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

// A change of a task with the ETag of what was read is made only as long as the task is the same,
// and in the same attempt of the same stage.
func TestIfMatchOfATask(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	c := configured{path: "/v1/tasks/" + id, token: b.token}
	etag := func() string {
		t.Helper()
		a := b.call("GET", c.path, "")
		require.Regexp(t, `^"[\w-]{16}"$`, a.header.Get("ETag"))
		return a.header.Get("ETag")
	}
	patch := func(body, etag string) answer { return b.change(c, "PATCH", body, "If-Match", etag) }
	refused := func(a answer, now string) {
		t.Helper()
		require.Equal(t, 412, a.status, "%s", a.body)
		assert.Equal(t, "precondition_failed", a.problem.Code)
		assert.Equal(t, now, a.header.Get("ETag"))
	}
	first := etag()
	assert.Equal(t, first, etag())
	refused(patch(`{"context":5}`, `"nobody"`), first)
	a := patch(`{"context":2}`, first)
	require.Equal(t, 200, a.status, "%s", a.body)
	second := a.header.Get("ETag")
	require.NotEqual(t, first, second)
	assert.Equal(t, second, etag())
	assert.Equal(t, 200, patch(`{"context":2}`, first).status, "its answer may have been lost")
	refused(patch(`{"context":3}`, first), second)
	refused(patch(`{"priority":7}`, first), second)
	assert.Equal(t, 200, patch(`{"priority":7}`, "*").status)
	assert.Equal(t, 200, b.call("PATCH", c.path, `{"priority":8}`).status, "without a condition")
	third := etag()

	// The task goes on to its second stage: what was meant for the first isn't for that.
	_, token := b.lease()
	assert.Equal(t, 409, patch(`{"context":4}`, third).status)
	require.Equal(t, 200, b.callAs(token, "POST", path+"/complete", `{}`).status)
	require.Equal(t, "second", read[api.Task](b, 200, b.call("GET", c.path, "")).Stage)
	fourth := etag()
	refused(patch(`{"context":4}`, third), fourth)
	require.Equal(t, 200, patch(`{"context":4}`, fourth).status)
	assert.Equal(t, 404, b.change(configured{path: "/v1/tasks/pipe.1.999999", token: b.token},
		"PATCH", `{"priority":1}`, "If-Match", "*").status)
}

// Of changes of a task that are made at the same time from the same state, one wins.
func TestIfMatchOfATaskAtOnce(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	c := configured{path: "/v1/tasks/" + id, token: b.token}
	etag := b.call("GET", c.path, "").header.Get("ETag")
	statuses := make(chan int)
	for n := range 4 {
		go func() {
			body := fmt.Sprintf(`{"context":%d}`, 10+n)
			statuses <- b.change(c, "PATCH", body, "If-Match", etag).status
		}()
	}
	count := map[int]int{}
	for range 4 {
		count[<-statuses]++
	}
	assert.Equal(t, map[int]int{200: 1, 412: 3}, count)
}

// Each change of a task's options is a row in the journal with what it was before: the first one
// with that of the submit. An erasure takes it away.
func TestChangesStayReadable(t *testing.T) {
	b := setup(t)
	b.claimed()
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", `{"type":"judge","context":1,
		"retry":{"max_attempts":5},"end_by":"2090-01-01T00:00:00Z"}`)).ID
	path := "/v1/tasks/" + id
	for _, body := range []string{`{"retry":{"max_attempts":40,"interval":"poly"}}`,
		`{"delay":"1h"}`, `{"retry":{},"priority":60}`, `{"start_by":"2080-01-01T00:00:00Z",
		"end_by":"none"}`, `{"claim":{"exclude":["anna"]}}`, `{"context":2}`} {
		a := b.call("PATCH", path, body)
		require.Equal(t, 200, a.status, "%s: %s", body, a.body)
	}
	want := []string{`{"field":"retry","before":{"max_attempts":5},
			"after":{"max_attempts":40,"interval":"poly"}}`, ``,
		`{"field":"priority","after":60},
			{"field":"retry","before":{"max_attempts":40,"interval":"poly"}}`,
		`{"field":"lifetime","before":{"end_by":"2090-01-01T00:00:00Z"},
			"after":{"start_by":"2080-01-01T00:00:00Z"}}`,
		`{"field":"claim","after":{"exclude":["anna"]}}`, ``}
	var rows []api.Attempt
	for cursor := ""; ; { // page by page: a row knows what was before the page
		page := read[api.AttemptList](b, 200,
			b.call("GET", path+"/attempts?limit=1&cursor="+cursor, ""))
		rows = append(rows, page.Data...)
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	require.Len(t, rows, len(want))
	for i, row := range rows {
		assert.Equal(t, []any{api.AttemptOutcome("changed"), "test"},
			[]any{row.Outcome, row.Subject}, i)
		doc, err := json.Marshal(append([]api.OptionChange{}, row.Changes...))
		require.NoError(t, err)
		assert.JSONEq(t, "["+want[i]+"]", string(doc), i)
	}
	require.Equal(t, 200, b.call("POST", path+"/cancel", "").status)
	require.Equal(t, 200, b.call("DELETE", path, "").status)
	for _, row := range read[api.AttemptList](b, 200, b.call("GET", path+"/attempts", "")).Data {
		assert.Empty(t, row.Changes)
	}
}
