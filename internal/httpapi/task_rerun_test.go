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
	"github.com/asyncflow/asyncflow/client/api"
)

// rerun calls rerunTask, with an idempotency key if there is one.
func (b *bundle) rerun(id, key, body string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST",
		b.url+"/v1/tasks/"+id+"/rerun", strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return b.do(req)
}

func TestRerun(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := b.failSecond()
	old := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	get := func(a answer, status int) api.Task {
		t.Helper()
		made := read[api.SubmittedTask](b, status, a)
		return read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+made.ID, ""))
	}
	task := get(b.rerun(id, "", ""), 201)
	assert.Equal(t, []any{id, "first", asyncflow.StatusPending, `1`},
		[]any{task.RerunOf, task.Stage, task.Status, string(task.Context)})
	task = get(b.rerun(id, "", `{"context":{"a":1.0},"delay":"1h"}`), 201)
	assert.Equal(t, []any{asyncflow.StatusWaiting, `{"a":1.0}`},
		[]any{task.Status, string(task.Context)})
	assert.WithinDuration(t, time.Now().Add(time.Hour), task.OrderTime, time.Minute)
	assert.Equal(t, old, read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")),
		"the old one stays as it is")
	listed := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe&status=waiting", ""))
	require.Len(t, listed.Data, 1)
	assert.Equal(t, id, listed.Data[0].RerunOf)

	// The same key makes one task, however often and at once it is sent.
	made := make([]api.SubmittedTask, 8)
	var calls sync.WaitGroup
	for i := range made {
		calls.Go(func() {
			a := b.rerun(id, "k", "")
			if assert.Contains(t, []int{200, 201}, a.status, "%s", a.body) {
				made[i] = read[api.SubmittedTask](b, a.status, a)
				assert.Equal(t, a.status == 200, made[i].Existing)
			}
		})
	}
	calls.Wait()
	for _, m := range made {
		assert.Equal(t, made[0].ID, m.ID)
	}
	assert.Equal(t, "k", get(b.rerun(id, "k", ""), 200).Key)
	read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+id+"/redrive", ""))
	assert.Equal(t, 409, b.rerun(id, "", "").status, "it is live again")
	assert.Equal(t, 409, b.rerun(id, "k", `{"context":2}`).status)
	assert.Equal(t, made[0].ID, get(b.rerun(id, "k", ""), 200).ID)
	assert.Equal(t, made[0].ID, get(b.rerun(id, "k", `{"context":1}`), 200).ID)
	read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", ""))
	a := b.rerun(id, "k", `{"context":2}`)
	assert.Equal(t, []any{422, "key_reused"}, []any{a.status, a.problem.Code})

	// A key that stands for another task is refused, also with the same context.
	read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"other"}`))
	a = b.rerun(id, "other", "")
	assert.Equal(t, 422, a.status, "%s", a.body)
	assert.Contains(t, a.problem.Detail, "doesn't run "+id+" again")
}

func TestRerunRefused(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := b.failSecond()
	live, _ := b.submitOne()
	a := b.rerun(live, "", "")
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "not final")
	assert.Equal(t, 404, b.rerun("pipe.1.999999", "", "").status)
	assert.Equal(t, 404, b.rerun("nope.1.1", "", "").status)
	for body, field := range map[string]string{
		`{"delay":"-1s"}`: "delay",
		`{"delay":"1h","run_at":"2027-01-01T00:00:00Z"}`: "delay",
		`{"run_at":"2099-01-01T00:00:00Z"}`:              "run_at",
		`{"key":"k"}`:                                    "key",
		`{"context":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: "context",
	} {
		a := b.rerun(id, "", body)
		require.Equal(t, 400, a.status, "%s: %s", body, a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, "%s: %s", body, a.body)
	}
	assert.Equal(t, 413, b.rerun(id, "", `{"context":"`+strings.Repeat("x", 300<<10)+`"}`).status)
	assert.Equal(t, 400, b.rerun(id, strings.Repeat("k", 256), "").status)
	reader := b.newToken("acme", "read", "submit")
	assert.Equal(t, 403, b.callAs(reader, "POST", "/v1/tasks/"+id+"/rerun", "").status)
	assert.Len(t, read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", "")).Data, 2,
		"none was made")
}

func TestBulkRerun(t *testing.T) {
	b := setup(t)
	b.pipe()
	for range 3 {
		b.failSecond()
	}
	assert.EqualValues(t, 3, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/rerun", `{"type":"pipe","status":"failed","dry_run":true}`)).Count)
	begun := read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/rerun", `{"type":"pipe","status":"failed"}`))
	again := b.call("POST", "/v1/tasks/rerun", `{"type":"pipe","status":"failed"}`)
	assert.Equal(t, 409, again.status)
	assert.Contains(t, again.problem.Detail, begun.ID)
	o := b.carryOn(begun)
	assert.Equal(t, []any{api.OperationKind("rerun"), api.OperationState("done"), int64(3)},
		[]any{o.Kind, o.State, o.Done})
	made := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe&status=pending", "")).Data
	require.Len(t, made, 3)
	of := map[string]bool{}
	for _, task := range made {
		of[task.RerunOf] = true
	}
	assert.Len(t, of, 3, fmt.Sprint(of))
}

// A task runs again with a context that is patched, also many at once. The operation shows the
// patch. A patch that isn't one is refused, and so is one of a context that is no object.
func TestRerunWithAPatch(t *testing.T) {
	b := setup(t)
	b.pipe()
	end := func(doc string) (id string) {
		t.Helper()
		id = read[api.SubmittedTask](b, 201,
			b.call("POST", "/v1/tasks", `{"type":"pipe","context":`+doc+`}`)).ID
		require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", "").status)
		return id
	}
	first, second, text := end(`{"n": 1.0, "footer":"old"}`), end(`{"n":2,"draft":true}`), end(`"x"`)
	const patch = `{"footer": "new", "draft": null}`
	made := read[api.SubmittedTask](b, 201,
		b.rerun(first, "k", `{"context_patch":`+patch+`}`))
	assert.Equal(t, `{"n":1.0,"footer":"new"}`, string(b.task(made.ID).Context))
	again := func(status int, body string) string {
		t.Helper()
		a := b.rerun(first, "k", body)
		require.Equal(t, status, a.status, "%s", a.body)
		if status != 200 {
			return ""
		}
		return read[api.SubmittedTask](b, status, a).ID
	}
	assert.Equal(t, made.ID, again(200, `{"context_patch":`+patch+`}`))
	again(422, `{"context_patch":{"footer":"newer"}}`)
	read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+first+"/redrive", ""))
	assert.Equal(t, made.ID, again(200, `{"context_patch":`+patch+`}`), "it is live again")
	again(409, `{"context_patch":{"footer":"newer"}}`)
	read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+first+"/cancel", ""))

	for body, field := range map[string]string{
		`"context_patch":7`:                   "context_patch",
		`"context_patch":null`:                "context_patch",
		`"context_patch":["a"]`:               "context_patch",
		`"context_patch":{"a":1},"context":2`: "context_patch",
		`"context_patch":{"\ud800":1}`:        "context_patch",
		`"context_patch":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: "context_patch",
	} {
		calls := []answer{b.rerun(first, "", `{`+body+`}`)}
		if !strings.Contains(body, `"context":`) {
			calls = append(calls, b.call("POST", "/v1/tasks/rerun",
				`{"type":"pipe","status":"cancelled",`+body+`}`))
		}
		for _, a := range calls {
			require.Equal(t, 400, a.status, "%s: %s", body, a.body)
			assert.Equal(t, field, a.problem.Errors[0].Field, body)
		}
	}
	large := `"context_patch":{"a":"` + strings.Repeat("x", 17<<10) + `"}`
	assert.Equal(t, 413, b.rerun(first, "", `{`+large+`}`).status)
	assert.Equal(t, 413, b.call("POST", "/v1/tasks/rerun",
		`{"type":"pipe","status":"cancelled",`+large+`}`).status)
	a := b.rerun(text, "", `{"context_patch":`+patch+`}`)
	assert.Equal(t, []any{409, "conflict"}, []any{a.status, a.problem.Code})
	assert.Contains(t, a.problem.Detail, "no JSON object")
	full := end(`{"a":"` + strings.Repeat("x", 900) + `"}`)
	assert.Equal(t, 413, b.rerun(full, "",
		`{"context_patch":{"b":"`+strings.Repeat("x", 200)+`"}}`).status, "together it is too long")

	body := `{"ids":["` + first + `","` + second + `","` + text + `"],"status":"cancelled",` +
		`"context_patch":` + patch + `}`
	o := b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/rerun", body)))
	assert.Equal(t, []any{api.OperationState("done"), int64(2), int64(1),
		`{"footer":"new","draft":null}`},
		[]any{o.State, o.Done, o.Skipped, string(o.ContextPatch)})
	contexts := map[string]string{}
	for _, id := range b.found("type=pipe&status=pending") {
		task := b.task(id)
		if strings.HasPrefix(task.Key, "rerun:") {
			contexts[task.RerunOf] = string(task.Context)
		}
	}
	assert.Equal(t, map[string]string{first: `{"n":1.0,"footer":"new"}`,
		second: `{"n":2,"footer":"new"}`}, contexts)
	entries := read[api.AuditList](b, 200, b.call("GET", "/v1/audit?action=tasks.rerun", "")).Data
	require.NotEmpty(t, entries)
	assert.Equal(t, "edited", entries[0].Detail["context"])
}

// A change of the context is delivered, and shown in the journal with who made it.
func TestPatchContext(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	patch := func(body string) answer { return b.call("PATCH", "/v1/tasks/"+id, body) }
	task := read[api.Task](b, 200, patch(`{"context":{"a":1.0},"delay":"0s"}`))
	assert.Equal(t, `1`, string(task.Context), "that of the submit stays")
	attempts := read[api.AttemptList](b, 200,
		b.call("GET", "/v1/tasks/"+id+"/attempts?outputs=true", "")).Data
	require.Len(t, attempts, 1)
	assert.Equal(t, []any{api.AttemptOutcome("changed"), `{"a":1.0}`, "test", ""},
		[]any{attempts[0].Outcome, string(attempts[0].Output), attempts[0].Subject,
			attempts[0].Endpoint})
	assert.Equal(t, 413, patch(`{"context":"`+strings.Repeat("x", 300<<10)+`"}`).status)
	deep := patch(`{"context":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`)
	require.Equal(t, 400, deep.status)
	assert.Equal(t, "context", deep.problem.Errors[0].Field)
	l, token := b.lease()
	assert.Equal(t, `{"a":1.0}`, string(l.Context))
	a := patch(`{"context":2}`)
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "it is running")
	require.Equal(t, 200,
		b.callAs(token, "POST", path+"/fail", `{"error":"no","retryable":false}`).status)
	a = patch(`{"context":2}`)
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "it has failed")
}

// A rerun counts as a submit.
func TestRerunsAreLimited(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := b.failSecond()
	b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme", `{"quotas":{"submits_per_second":1}}`)
	require.Eventually(t, func() bool {
		a := b.rerun(id, "", "")
		return a.status == 429 && a.header.Get("RateLimit") != ""
	}, patience, time.Millisecond)
}
