package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
)

func TestIdempotencyKey(t *testing.T) {
	b := setup(t)
	b.pipe()
	first := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":{"a":1},"key":"order 7"}`))
	assert.False(t, first.Existing)
	again := read[api.SubmittedTask](b, 200,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":{"a":1},"key":"order 7"}`))
	assert.Equal(t, []any{first.ID, true, asyncflow.StatusPending},
		[]any{again.ID, again.Existing, again.Status})
	b.lease()
	again = read[api.SubmittedTask](b, 200,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":{"a":1},"key":"order 7"}`))
	assert.Equal(t, asyncflow.StatusRunning, again.Status,
		"its status is that of the first task now")
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+first.ID, ""))
	assert.Equal(t, "order 7", task.Key)

	a := b.call("POST", "/v1/tasks", `{"type":"pipe","context":{"a":2},"key":"order 7"}`)
	assert.Equal(t, 422, a.status)
	assert.Equal(t, "key", a.problem.Errors[0].Field)
	assert.Contains(t, a.problem.Detail, first.ID+", which has another context")

	b.call("PUT", "/v1/task-types/other", `{"stages":[{"name":"only"}]}`)
	assert.Equal(t, 201, b.call("POST", "/v1/tasks",
		`{"type":"other","context":{"a":2},"key":"order 7"}`).status, "keys are by type")
	for body, field := range map[string]string{
		`"key":"` + strings.Repeat("k", 256) + `"`: "key",
		`"key_window":"1h"`:                        "key_window",
		`"key":"k","key_window":"5000h"`:           "key_window",
		`"key":"k","key_window":"-1h"`:             "key_window",
		`"key":"a` + "\\u0000" + `b"`:              "key",
		`"key":""`:                                 "key",
		`"k\u0065y" : "","delay":"1s"`:             "key",
		`"flow_key":""`:                            "flow_key",
	} {
		task := `{"type":"pipe","context":1,` + body + `}`
		a := b.call("POST", "/v1/tasks", task)
		require.Equal(t, 400, a.status, "%s: %s", body, a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
		batch := read[api.SubmittedBatch](b, 201,
			b.call("POST", "/v1/tasks/batch", `{"tasks":[`+task+`]}`)).Tasks
		require.NotEmpty(t, batch[0].Error.Errors, body)
		assert.Equal(t, []string{"tasks[0]." + field, a.problem.Errors[0].Message},
			[]string{batch[0].Error.Errors[0].Field, batch[0].Error.Errors[0].Message}, body)
	}
}

// A submit may be refused for its key, or cancel the task that holds it: this needs the scope
// operate.
func TestOnConflict(t *testing.T) {
	b := setup(t)
	b.pipe()
	task := func(doc, more string) string {
		return `{"type":"pipe","context":` + doc + `,"key":"k"` + more + `}`
	}
	first := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", task(`{"a":1,"b":2}`, `,"key_window":"until_final"`)))
	again := read[api.Task](b, 200, b.call("POST", "/v1/tasks", task(`{ "b": 2, "a": 1 }`, ``)))
	assert.Equal(t, first.ID, again.ID, "the same value")
	a := b.call("POST", "/v1/tasks", task(`{"a":1,"b":2}`, `,"on_conflict":"reject"`))
	assert.Equal(t, 422, a.status)
	assert.Equal(t, "key_reused", a.problem.Code)
	assert.Equal(t, "stands for task "+first.ID, a.problem.Errors[0].Message)

	newest := task(`3`, `,"on_conflict":"cancel_running"`)
	submitter := b.newToken("acme", auth.ScopeSubmit)
	for path, body := range map[string]string{"/v1/tasks": newest,
		"/v1/tasks/batch": `{"tasks":[` + newest + `]}`} {
		a := b.callAs(submitter, "POST", path, body)
		assert.Contains(t, string(a.body), "on_conflict cancel_running cancels tasks: this needs")
		assert.Contains(t, string(a.body), `"status":403`)
	}
	second := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", newest))
	assert.NotEqual(t, first.ID, second.ID)
	was := b.task(first.ID)
	assert.Equal(t, asyncflow.StatusCancelled, was.Status)
	assert.Equal(t, "cancelled by a later submit with its idempotency key", was.Error)
	for more, field := range map[string]string{
		`,"on_conflict":"never"`:         "on_conflict",
		`,"key_window":"until_finl"`:     "key_window",
		`,"key_window":"until_final 1h"`: "key_window",
		`,"key":"","on_conflict":"x"`:    "key",
	} {
		a := b.call("POST", "/v1/tasks", task(`1`, more))
		require.Equal(t, 400, a.status, more)
		require.Contains(t, string(a.body), `"`+field+`"`, more)
	}
	a = b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"on_conflict":"reject"}`)
	require.Equal(t, 400, a.status)
	require.Equal(t, "on_conflict", a.problem.Errors[0].Field)
}

func TestIdempotencyKeyHeader(t *testing.T) {
	b := setup(t)
	b.pipe()
	submitWith := func(headers []string, body string) answer {
		req, err := http.NewRequest("POST", b.url+"/v1/tasks", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+b.token)
		req.Header.Set("Content-Type", "application/json")
		req.Header["Idempotency-Key"] = headers
		return b.do(req)
	}
	submit := func(header, body string) answer { return submitWith([]string{header}, body) }
	first := read[api.SubmittedTask](b, 201, submit("h1", `{"type":"pipe","context":1}`))
	assert.Equal(t, first.ID, read[api.SubmittedTask](b, 200,
		submit("h1", `{"type":"pipe","context":1}`)).ID)
	assert.Equal(t, first.ID, read[api.SubmittedTask](b, 200,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"h1"}`)).ID,
		"it is the same thing as key")
	a := submit("h1", `{"type":"pipe","context":1,"key":"h2"}`)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "Idempotency-Key", a.problem.Errors[0].Field)
	a = submitWith([]string{"h1", "h2"}, `{"type":"pipe","context":1}`)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "Idempotency-Key", a.problem.Errors[0].Field)
	assert.Contains(t, a.problem.Errors[0].Message, "is given 2 times")
	a = submit("", `{"type":"pipe","context":1}`)
	assert.Equal(t, 400, a.status, "an empty one would be none in silence")
	assert.Equal(t, "Idempotency-Key", a.problem.Errors[0].Field)
}

// A change with a header that would be ignored is refused, and changes nothing. They are allowed
// for reads, and for reports of workers.
func TestHeadersThatWouldBeIgnored(t *testing.T) {
	b := setup(t)
	b.pipe()
	read[api.Schedule](b, 201, b.call("PUT", "/v1/schedules/nightly",
		`{"type":"pipe","context":1,"cron":"@daily"}`))
	b.submitOne()
	before := b.contents()
	call := func(method, path, token, body, header string) answer {
		req, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		req.Header.Set(header, `"1"`)
		return b.do(req)
	}
	const pipe = `{"stages":[{"name":"first"},{"name":"second"},{"name":"third"}]}`
	for _, c := range []struct{ method, path, body, header string }{
		{"POST", "/v1/tasks/batch", `{"tasks":[{"type":"pipe","context":1}]}`, "Idempotency-Key"},
		{"POST", "/v1/schedules/nightly/trigger", "", "Idempotency-Key"},
		{"POST", "/v1/tasks/cancel", `{"filter":{"type":"pipe"}}`, "Idempotency-Key"},
		{"POST", "/v1/task-types/pipe/pause", `{}`, "If-Match"},
		{"PUT", "/v1/task-types/new", pipe, "If-None-Match"},
		{"DELETE", "/v1/schedules/nightly", "", "If-Unmodified-Since"},
		{"POST", "/v1/tasks", `{"type":"pipe","context":1}`, "If-Match"},
	} {
		a := call(c.method, c.path, b.token, c.body, c.header)
		require.Equal(t, 400, a.status, "%s %s: %s", c.method, c.path, a.body)
		require.Equal(t, c.header, a.problem.Errors[0].Field, c.path)
	}
	assert.Equal(t, before, b.contents())
	assert.Equal(t, 200, call("GET", "/v1/task-types/pipe", b.token, "", "If-None-Match").status)
	lease, completion := b.lease()
	assert.Equal(t, 200, call("POST", "/v1/callbacks/"+lease.ID.String()+"/complete",
		completion, "", "Idempotency-Key").status)
}

// This holds for each call of the contract that doesn't name the header.
func TestHeadersThatAnyChangeWouldIgnore(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	doc := contracttest.Document()
	fill := strings.NewReplacer("{type}", "pipe", "{name}", "nightly", "{slug}", "other",
		"{id}", "pipe.1.1", "{version}", "1", "{token}", "x", "{stage}", "only")
	admin, before, calls, refused := b.adminToken(), b.contents(), 0, 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if method == http.MethodGet || strings.HasPrefix(path, "/v1/callbacks/") ||
				op.Security != nil && len(*op.Security) == 0 {
				continue
			}
			for _, header := range []string{"Idempotency-Key", "If-Match", "If-None-Match"} {
				if op.Parameters.GetByInAndName("header", header) != nil {
					continue
				}
				calls++
				for _, token := range []string{b.token, admin} {
					req, err := http.NewRequest(method, b.url+fill.Replace(path), nil)
					require.NoError(t, err)
					req.Header.Set("Authorization", "Bearer "+token)
					req.Header.Set(header, `"1"`)
					a := b.do(req)
					if a.status == 401 || a.status == 403 { // it takes another kind of token
						continue
					}
					refused++
					require.Equal(t, 400, a.status, "%s %s: %s", method, path, a.body)
					require.Equal(t, header, a.problem.Errors[0].Field, path)
				}
			}
		}
	}
	assert.Greater(t, refused, calls*9/10)
	assert.Equal(t, before, b.contents())
}

// The answer to a repeated key shows the order_time of a task that is still in the order, and none
// for a running or final task.
func TestIdempotencyKeyOfATaskOutOfOrder(t *testing.T) {
	b := setup(t)
	b.pipe()
	const task = `{"type":"pipe","context":1,"key":"k"}`
	first := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", task))
	assert.Equal(t, first.OrderTime,
		read[api.SubmittedTask](b, 200, b.call("POST", "/v1/tasks", task)).OrderTime)
	check := func(status asyncflow.Status) {
		t.Helper()
		for path, body := range map[string]string{"/v1/tasks": task,
			"/v1/tasks/batch": `{"tasks":[` +
				task + `]}`} {
			a := b.call("POST", path, body)
			assert.Contains(t, string(a.body), `"status":"`+string(status)+`"`)
			assert.NotContains(t, string(a.body), "order_time")
		}
	}
	b.lease()
	check(asyncflow.StatusRunning)
	require.Equal(t, 200, b.call("POST", "/v1/tasks/"+first.ID+"/cancel", "").status)
	check(asyncflow.StatusCancelled)
}

// Many submits with one key at once create one task, in batches and single calls.
func TestIdempotencyKeyAtOnce(t *testing.T) {
	b := setup(t)
	b.pipe()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]int{}
	note := func(id string) {
		mu.Lock()
		ids[id]++
		mu.Unlock()
	}
	for range 64 {
		wg.Go(func() {
			a := b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"one"}`)
			if assert.Contains(t, []int{200, 201}, a.status, "%s", a.body) {
				note(read[api.SubmittedTask](b, a.status, a).ID)
			}
		})
		wg.Go(func() {
			a := read[api.SubmittedBatch](b, 201,
				b.call("POST", "/v1/tasks/batch",
					`{"tasks":[{"type":"pipe","context":1,"key":"one"},{"type":"pipe","context":1,"key":"one"}]}`))
			for _, r := range a.Tasks {
				note(r.Task.ID)
			}
		})
	}
	wg.Wait()
	assert.Len(t, ids, 1, "one task")
	assert.Len(t, read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", "")).Data, 1)
}

func TestIdempotencyKeyExpires(t *testing.T) {
	b := setup(t)
	b.pipe()
	submit := func() answer {
		return b.call("POST", "/v1/tasks",
			`{"type":"pipe","context":1,"key":"k","key_window":"1h"}`)
	}
	first := read[api.SubmittedTask](b, 201, submit())
	n, err := b.store.ExpireKeys(t.Context(), "acme")
	require.NoError(t, err)
	assert.Zero(t, n)
	expire := func() {
		_, err := b.db.Exec(t.Context(),
			`UPDATE tenant_acme.idempotency_keys SET expires_at = now() - interval '1 s'`)
		require.NoError(t, err)
	}
	expire()
	second := read[api.SubmittedTask](b, 201, submit())
	assert.NotEqual(t, first.ID, second.ID,
		"its window is over, though governance hasn't been there yet")
	expire()
	n, err = b.store.ExpireKeys(t.Context(), "acme")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, 201, submit().status)
}

// In a batch, a key that belongs to another task fails alone.
func TestIdempotencyKeysInABatch(t *testing.T) {
	b := setup(t)
	b.pipe()
	first := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"a"}`))
	a := read[api.SubmittedBatch](b, 201, b.call("POST", "/v1/tasks/batch", fmt.Sprintf(`{"tasks":[
		{"type":"pipe","context":1,"key":"a"}, {"type":"pipe","context":2,"key":"a"},
		{"type":"pipe","context":3,"key":"b"}, {"type":"pipe","context":"%s","key":"c"},
		{"type":"pipe","context":4}]}`, "\xff")))
	assert.Equal(t, []any{first.ID, true}, []any{a.Tasks[0].Task.ID, a.Tasks[0].Task.Existing})
	assert.Equal(t, []any{422, "tasks[1].key"},
		[]any{a.Tasks[1].Error.Status, a.Tasks[1].Error.Errors[0].Field})
	assert.Equal(t, asyncflow.StatusPending, a.Tasks[2].Task.Status)
	assert.Equal(t, 400, a.Tasks[3].Error.Status)
	assert.Equal(t, asyncflow.StatusPending, a.Tasks[4].Task.Status)
}

// A submit replaces the task with its key, if that is not begun, by a call or in a batch. The
// answer says so, and shows nobody else's context.
func TestOnConflictReplace(t *testing.T) {
	b := setup(t)
	b.pipe()
	submitter := b.newToken("acme", auth.ScopeSubmit)
	task := func(doc, more string) string {
		return `{"type":"pipe","context":` + doc + `,"key":"k","on_conflict":"replace"` + more + `}`
	}
	first := read[api.SubmittedTask](b, 201, b.callAs(submitter, "POST", "/v1/tasks",
		task(`1`, `,"delay":"1h","max_wait":"90m"`)))
	assert.False(t, first.Replaced)
	second := read[api.SubmittedTask](b, 200, b.callAs(submitter, "POST", "/v1/tasks",
		task(`2`, `,"delay":"1h","max_wait":"90m"`)))
	assert.Equal(t, []any{first.ID, true, true, asyncflow.StatusWaiting},
		[]any{second.ID, second.Existing, second.Replaced, second.Status})
	assert.True(t, second.OrderTime.After(first.OrderTime))
	late := read[api.SubmittedTask](b, 200, b.callAs(submitter, "POST", "/v1/tasks",
		task(`3`, `,"delay":"80m","max_wait":"80m"`)))
	assert.Equal(t, 80*time.Minute, late.OrderTime.Sub(first.CreatedAt))

	batch := read[api.SubmittedBatch](b, 201, b.callAs(submitter, "POST", "/v1/tasks/batch",
		`{"tasks":[`+task(`4`, `,"delay":"1h"`)+`,`+task(`5`, `,"delay":"1h"`)+`]}`)).Tasks
	for _, r := range batch {
		require.NotNil(t, r.Task)
		assert.Equal(t, []any{first.ID, true}, []any{r.Task.ID, r.Task.Replaced})
	}
	journal := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+first.ID+"/attempts", ""))
	last := journal.Data[len(journal.Data)-1]
	assert.Equal(t, []any{asyncflow.OutcomeChanged, `5`},
		[]any{asyncflow.OutcomeKind(last.Outcome), string(last.Output)})
	assert.NotEmpty(t, last.Subject)

	for more, field := range map[string]string{
		`,"max_wait":"5s"`:                            "max_wait needs a delay",
		`,"delay":"10s","max_wait":"9s"`:              "max_wait is 9s; it must be at least the delay",
		`,"delay":"10s","max_wait":"54w"`:             "max_wait is 9072h0m0s; it must be up to 8760h0m0s (a year)",
		`,"delay":"10s","max_wait":"-9s"`:             "max_wait",
		`,"depends_on":[{"task":"` + first.ID + `"}]`: "replace and depends_on exclude each other",
	} {
		a := b.call("POST", "/v1/tasks", task(`1`, more))
		require.Equal(t, 400, a.status, more)
		require.Contains(t, string(a.body), field, more)
	}
	a := b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"key":"k","delay":"1s","max_wait":"5s"}`)
	require.Equal(t, 400, a.status)
	require.Equal(t, []asyncflow.FieldError{{Field: "max_wait",
		Message: "needs on_conflict replace"}}, a.problem.Errors)

	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"key":"other","delay":"1h"}`))
	other := strings.Replace(task(`2`, ``), `"k"`, `"other"`, 1)
	a = b.callAs(submitter, "POST", "/v1/tasks", other)
	require.Equal(t, 422, a.status)
	require.Contains(t, a.problem.Errors[0].Message, "it takes the scope operate")
	r := read[api.SubmittedTask](b, 200, b.call("POST", "/v1/tasks", other))
	require.True(t, r.Replaced)
}
