package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// single creates a task type with one stage.
func (b *bundle) single() {
	b.t.Helper()
	a := b.call("PUT", "/v1/task-types/single", `{"stages":[{"name":"only"}]}`)
	require.Equal(b.t, http.StatusCreated, a.status, "%s", a.body)
}

// finish ends the next task of the type single as its worker would, with an output.
func (b *bundle) finish(output string) {
	b.t.Helper()
	l, _ := b.leaseOf("single")
	t, err := b.store.Catalog.Type("acme", "single")
	require.NoError(b.t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(output)}
	b.committer.Settle("acme", asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, l, o, b.store.Clock.Now())},
		func(store.Settled) {})
}

// A submit with wait is answered with the final task, or with the id when the time is up.
func TestSubmitAndWait(t *testing.T) {
	b := setup(t)
	b.single()
	start := time.Now()
	waiting := read[api.SubmittedTask](b, 202,
		b.call("POST", "/v1/tasks?wait=50ms", `{"type":"single","context":1}`))
	assert.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	assert.Equal(t, []any{asyncflow.StatusPending, "only", false},
		[]any{waiting.Status, waiting.Stage, waiting.Existing})
	b.finish(`"first"`)

	got := make(chan api.Task)
	go func() {
		got <- read[api.Task](b, 200,
			b.call("POST", "/v1/tasks?wait=50s", `{"type":"single","context":{"n":2}}`))
	}()
	b.finish(`{"done":true}`)
	task := <-got
	assert.NotEqual(t, waiting.ID, task.ID)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.JSONEq(t, `{"done":true}`, string(task.Result))
	assert.JSONEq(t, `{"n":2}`, string(task.Context))
	assert.False(t, task.Existing)
	assert.Less(t, time.Since(start), 49*time.Second, "it was told, and didn't wait to the end")
	read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks?wait=0s", `{"type":"single","context":1}`))
}

// A repeated key answers with the first task, whole; wait works there too.
func TestSubmitAttaches(t *testing.T) {
	b := setup(t)
	b.single()
	const body = `{"type":"single","context":{"n":1},"key":"order-7"}`
	first := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", body))
	again := read[api.Task](b, 200, b.call("POST", "/v1/tasks", body))
	assert.Equal(t, []any{first.ID, true, asyncflow.StatusPending, "order-7"},
		[]any{again.ID, again.Existing, again.Status, again.Key})
	assert.JSONEq(t, `{"n":1}`, string(again.Context))
	assert.Empty(t, again.Result)

	late := read[api.SubmittedTask](b, 202, b.call("POST", "/v1/tasks?wait=1ms", body))
	assert.Equal(t, []any{first.ID, true}, []any{late.ID, late.Existing})
	got := make(chan api.Task)
	go func() { got <- read[api.Task](b, 200, b.call("POST", "/v1/tasks?wait=50s", body)) }()
	b.finish(`{"total":12}`)
	task := <-got
	assert.Equal(t, []any{first.ID, true, asyncflow.StatusSucceeded},
		[]any{task.ID, task.Existing, task.Status})
	assert.JSONEq(t, `{"total":12}`, string(task.Result))
	again = read[api.Task](b, 200, b.call("POST", "/v1/tasks", body))
	assert.JSONEq(t, `{"total":12}`, string(again.Result), "also without a wait")
	assert.Equal(t, 422, b.call("POST", "/v1/tasks?wait=50s",
		strings.Replace(body, "1", "2", 1)).status, "another context is another task")
}

// The answer to a repeated key, and to a submit that waited, shows all that a read of the task
// shows, also of one that failed.
func TestSubmitAnswersTheWholeTask(t *testing.T) {
	b := setup(t)
	b.single()
	const body = `{"type":"single","context":1,"key":"k","flow_key":"f",` + labels + `}`
	got := make(chan api.Task)
	go func() { got <- read[api.Task](b, 200, b.call("POST", "/v1/tasks?wait=50s", body)) }()
	l, token := b.leaseOf("single")
	id := l.ID.String()
	require.Equal(t, 200, b.callFrom("worker-1", token, "/v1/callbacks/"+id+"/fail",
		`{"error":"card_declined: no","retryable":false}`).status)
	waited := <-got
	want := b.task(id)
	assert.Equal(t, asyncflow.StatusFailed, want.Status)
	assert.NotEmpty(t, want.Fingerprint)
	assert.Equal(t, want, waited)
	want.Existing = true
	for _, path := range []string{"/v1/tasks", "/v1/tasks?wait=1s"} {
		assert.Equal(t, want, read[api.Task](b, 200, b.call("POST", path, body)), path)
	}
}

// A token that may only submit learns how the first task stands, and may not wait for results.
func TestSubmitWithoutTheScopeRead(t *testing.T) {
	b := setup(t)
	b.single()
	const body = `{"type":"single","context":{"n":1},"key":"order-7"}`
	first := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", body))
	b.finish(`{"secret":1}`)
	require.Eventually(t, func() bool {
		return read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+first.ID, "")).Status.Final()
	}, patience, 20*time.Millisecond)
	submitOnly := b.newToken("acme", auth.ScopeSubmit)
	a := b.callAs(submitOnly, "POST", "/v1/tasks", body)
	again := read[api.Task](b, 200, a)
	assert.Equal(t, []any{first.ID, true, asyncflow.StatusSucceeded},
		[]any{again.ID, again.Existing, again.Status})
	for _, field := range []string{"secret", "context", "result", "order-7"} {
		assert.NotContains(t, string(a.body), field)
	}
	before := b.contents()
	a = b.callAs(submitOnly, "POST", "/v1/tasks?wait=1s", `{"type":"single","context":1}`)
	assert.Equal(t, 403, a.status)
	assert.Contains(t, a.problem.Detail, `the scope "read"`)
	assert.Equal(t, before, b.contents(), "nothing was submitted")
}

func TestSubmitWaitRefused(t *testing.T) {
	b := setup(t)
	b.single()
	before := b.contents()
	for path, says := range map[string]string{
		"/v1/tasks?wait=2h":            "it must be 0s to 1m",
		"/v1/tasks?wait=-1s":           "it must be 0s to 1m",
		"/v1/tasks?wait=long":          "duration",
		"/v1/tasks?wait=1s&wait=2s":    "is given 2 times",
		"/v1/tasks/batch?wait=1s":      "is not a parameter of this call",
		"/v1/tasks?wait=1s%00":         "must be UTF-8 without NUL",
		"/v1/tasks?wait=999999999999h": "",
	} {
		body := `{"type":"single","context":1}`
		if strings.Contains(path, "batch") {
			body = `{"tasks":[` + body + `]}`
		}
		a := b.call("POST", path, body)
		require.Equal(t, 400, a.status, "%s: %s", path, a.body)
		assert.Equal(t, "wait", a.problem.Errors[0].Field, path)
		assert.Contains(t, a.problem.Errors[0].Message, says, path)
	}
	assert.Equal(t, before, b.contents(), "nothing was submitted")
}

// Waiting submits count among the waiting calls of their tenant. Over that share nothing is
// submitted.
func TestSubmitWaitShare(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.Streams.Max, c.Streams.MaxPerTenant = 5, 1 })
	b.single()
	done := make(chan answer)
	go func() {
		done <- b.call("POST", "/v1/tasks?wait=50s", `{"type":"single","context":1}`)
	}()
	require.Eventually(t, func() bool { return b.server.Streams() == 1 }, patience,
		20*time.Millisecond)
	a := b.call("POST", "/v1/tasks?wait=1s", `{"type":"single","context":"over"}`)
	assert.Equal(t, []any{429, "rate_limited"}, []any{a.status, a.problem.Code})
	assert.Contains(t, a.problem.Detail, "1 event streams and waiting calls")
	b.finish(`1`)
	assert.Equal(t, 200, (<-done).status)
	list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=single", ""))
	assert.Len(t, list.Data, 1, "what couldn't wait was not submitted")
	assert.Equal(t, 202,
		b.call("POST", "/v1/tasks?wait=1ms", `{"type":"single","context":1}`).status,
		"the share is given back")
}

// A server that stops answers waiting submits with the id.
func TestSubmitWaitEndsWithTheServer(t *testing.T) {
	b := setup(t)
	b.single()
	done := make(chan answer)
	go func() {
		done <- b.call("POST", "/v1/tasks?wait=50s", `{"type":"single","context":1}`)
	}()
	require.Eventually(t, func() bool { return b.server.Streams() == 1 }, patience,
		20*time.Millisecond)
	b.stop()
	read[api.SubmittedTask](b, 202, <-done)
}

// The body of a waiting submit is given back before it waits.
func TestSubmitWaitKeepsNoBody(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.MaxContext = 1 << 20
		c.Bodies.Max, c.Bodies.MaxPerTenant = 1<<20, 1<<20
	})
	b.single()
	body := `{"type":"single","context":"` + strings.Repeat("x", 600<<10) + `"}`
	done := make(chan answer)
	go func() { done <- b.call("POST", "/v1/tasks?wait=50s", body) }()
	require.Eventually(t, func() bool { return b.server.Streams() == 1 }, patience,
		20*time.Millisecond)
	require.Eventually(t, func() bool {
		return b.call("POST", "/v1/tasks", body).status == 201
	}, patience, 20*time.Millisecond, "two bodies at once don't fit")
	b.finish(`1`)
	assert.Equal(t, 200, (<-done).status)
}
