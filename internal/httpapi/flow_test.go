package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/store"
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

func TestEndpoints(t *testing.T) {
	b := setup(t)
	b.pipe()
	made := read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"first","url":"https://w.example.com/x"}`))
	require.NoError(t, signing.CheckSecret(made.Secret))
	a := b.call("GET", "/v1/endpoints/"+made.ID, "")
	assert.NotContains(t, string(a.body), made.Secret[6:], "it is shown once")
	list := read[api.EndpointList](b, 200, b.call("GET", "/v1/endpoints?type=pipe", ""))
	require.Len(t, list.Data, 1)
	assert.Empty(t, list.Data[0].Secret)
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	sealed := pipe.Endpoints("first")[0]
	assert.NotContains(t, string(sealed.Secrets[0].Sealed), made.Secret[6:], "it is not stored in clear")
	secret, err := b.keys.Open(sealed.Secrets[0].Sealed, sealed.ID)
	require.NoError(t, err)
	assert.Equal(t, made.Secret, secret)
	own := signing.NewSecret()
	second := read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints", fmt.Sprintf(`{"type":"pipe","stage":"first","url":"https://w2.example.com/x","secret":%q}`, own)))
	assert.Equal(t, own, second.Secret)
	assert.Equal(t, 204, b.call("DELETE", "/v1/endpoints/"+made.ID, "").status)
	assert.Equal(t, 404, b.call("DELETE", "/v1/endpoints/"+made.ID, "").status)
}

// lease takes the one task that is due, as a dispatcher does.
func (b *bundle) lease() (asyncflow.Lease, string) {
	b.t.Helper()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(b.t, err)
	var leases []asyncflow.Lease
	require.Eventually(b.t, func() bool {
		leases, _, err = b.store.Lease(b.t.Context(), pipe, 1)
		return err == nil && len(leases) == 1
	}, patience, 5*time.Millisecond)
	l := leases[0]
	return l, b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID, Seq: l.Seq, Expiry: time.Now().Add(time.Hour)})
}

func TestCompletion(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":{"a":1}}`)).ID
	path := "/v1/callbacks/" + id
	l, first := b.lease()
	assert.Equal(t, id, l.ID.String())

	assert.Equal(t, asyncflow.StatusPending, read[api.CallbackResult](b, 200, b.callAs(first, "POST", path+"/fail", `{"error":"not now"}`)).Status)
	assert.Equal(t, 200, b.callAs(first, "POST", path+"/fail", `{"error":"not now"}`).status, "the same outcome again")
	a := b.callAs(first, "POST", path+"/complete", `{}`)
	assert.Equal(t, 409, a.status, "another outcome")
	assert.Contains(t, a.problem.Detail, `ended as "failed"`)

	l, second := b.lease()
	assert.Equal(t, 2, l.Attempt)
	assert.Equal(t, 409, b.callAs(first, "POST", path+"/complete", ``).status, "an attempt that is over can't end another")
	for range 2 {
		assert.Equal(t, 200, b.callAs(second, "POST", path+"/complete", `{"output":{"x":[1, 2]}}`).status)
	}
	for _, other := range []string{`{"output":{"x":[1,2]}}`, `{"output":3}`, ``} {
		a := b.callAs(second, "POST", path+"/complete", other)
		assert.Equal(t, 409, a.status, "the output %q is not what counts", other)
		assert.Contains(t, a.problem.Detail, `ended as "done" with another output`)
	}

	l, third := b.lease()
	assert.Equal(t, []any{"second", `{"x":[1, 2]}`}, []any{l.Stage, string(l.Context)})
	assert.Equal(t, asyncflow.StatusSucceeded, read[api.CallbackResult](b, 200, b.callAs(third, "POST", path+"/complete", ``)).Status, "without a body")
	assert.Equal(t, 200, b.callAs(third, "POST", path+"/complete", `{}`).status, "without an output, again")
	assert.Equal(t, 409, b.callAs(third, "POST", path+"/complete", `{"output":1}`).status, "there was none")
	done := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.JSONEq(t, `{"x":[1,2]}`, string(done.Result), "what the last stage was sent")
	attempts := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	require.Len(t, attempts, 3)
	assert.Equal(t, []api.AttemptOutcome{"failed", "done", "done"}, []api.AttemptOutcome{attempts[0].Outcome, attempts[1].Outcome, attempts[2].Outcome})
	assert.Equal(t, "not now", attempts[0].Error)
	assert.JSONEq(t, `{"x":[1,2]}`, string(attempts[1].Output))

	for name, c := range map[string]struct {
		token, path, body string
		status            int
		field             string
	}{
		"no token":         {"", path + "/complete", "", 401, ""},
		"another task's":   {first, "/v1/callbacks/pipe.1.2/complete", "", 401, ""},
		"bad id":           {first, "/v1/callbacks/pipe/complete", "", 400, "id"},
		"unknown field":    {first, path + "/complete", `{"result":1}`, 400, "result"},
		"fail without why": {first, path + "/fail", `{}`, 400, "error"},
		"fail at all":      {first, path + "/fail", ``, 400, "body"},
	} {
		a := b.callAs(c.token, "POST", c.path, c.body)
		assert.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		if c.field != "" && assert.NotEmpty(t, a.problem.Errors, name) {
			assert.Equal(t, c.field, a.problem.Errors[0].Field, name)
		}
	}
}

// A report that another node has had already is answered by where the task stands by now,
// though this one remembers the lease.
func TestCompletionElsewhere(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	path := "/v1/callbacks/" + id
	l, first := b.lease()
	b.committer.Accept("acme", l, l.Until.Add(time.Hour), func(error) {})
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "not now"}
	settled := make(chan store.Settled, 1)
	settled <- b.settleElsewhere(pipe, asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.store.Clock.Now())})
	require.Equal(t, store.Settled{}, <-settled)
	_, second := b.lease()
	require.Equal(t, 200, b.callAs(second, "POST", path+"/fail", `{"error":"never","retryable":false}`).status)
	_, known := b.committer.Accepted("acme", l.ID, l.Seq)
	require.True(t, known)
	assert.Equal(t, asyncflow.StatusFailed, read[api.CallbackResult](b, 200, b.callAs(first, "POST", path+"/fail", `{"error":"not now"}`)).Status)
}

// settleElsewhere settles a lease as another node would, of whose settlements this one knows
// nothing.
func (b *bundle) settleElsewhere(t *store.Type, s asyncflow.Settlement) store.Settled {
	b.t.Helper()
	e := &store.Ending{Settlement: &s}
	require.NoError(b.t, b.store.SettleAgain(b.t.Context(), t, []*store.Ending{e}))
	return e.Settled
}

// Fifty completions at once: exactly one counts, and all of them hear that it does.
func TestCompletionAtOnce(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID
	_, token := b.lease()
	var wg sync.WaitGroup
	statuses := make([]int, 50)
	for i := range statuses {
		wg.Go(func() { statuses[i] = b.callAs(token, "POST", "/v1/callbacks/"+id+"/complete", `{"output":1}`).status })
	}
	wg.Wait()
	for _, s := range statuses {
		assert.Equal(t, 200, s)
	}
	assert.Len(t, read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data, 1)
}

// Of two outcomes at once, from this node or from another one's worker that answered at
// once, exactly one counts, and whoever reported the other hears that it doesn't.
func TestOutcomesAtOnce(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	l, token := b.lease()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`"answered"`)}
	settled := make(chan store.Settled, 1)
	bodies := []string{`{"output":0}`, `{"output":1}`, `{"output":2}`}
	statuses := make([]int, 20*len(bodies))
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() { statuses[i] = b.callAs(token, "POST", path+"/complete", bodies[i%len(bodies)]).status })
	}
	wg.Go(func() {
		settled <- b.settleElsewhere(pipe, asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.store.Clock.Now())})
	})
	wg.Wait()
	attempts := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	require.Len(t, attempts, 1)
	counts := string(attempts[0].Output)
	for i, status := range statuses {
		want := 409
		if bodies[i%len(bodies)] == `{"output":`+counts+`}` {
			want = 200
		}
		assert.Equal(t, want, status, "%s, where %s counts", bodies[i%len(bodies)], counts)
	}
	assert.Equal(t, counts != `"answered"`, (<-settled).Stale)
}

func TestWaitForTheEnd(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID
	start := time.Now()
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id+"?wait=50ms", ""))
	assert.Equal(t, asyncflow.StatusPending, task.Status)
	assert.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	got := make(chan api.Task)
	go func() { got <- read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id+"?wait=30s", "")) }()
	l, _ := b.lease()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "never"}
	b.committer.Settle("acme", asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.store.Clock.Now())}, func(store.Settled) {})
	task = <-got
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	assert.Equal(t, "never", task.Error)
	assert.Less(t, time.Since(start), 29*time.Second, "it was told, and didn't wait to the end")
}

func TestListPages(t *testing.T) {
	b := setup(t)
	b.pipe()
	for i := range 7 {
		b.call("POST", "/v1/tasks", fmt.Sprintf(`{"type":"pipe","context":%d}`, i))
	}
	seen, cursor := map[string]bool{}, ""
	for page := 1; ; page++ {
		list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe&limit=3&cursor="+cursor, ""))
		for _, task := range list.Data {
			seen[task.ID] = true
			assert.Nil(t, task.Context)
		}
		if cursor = list.NextCursor; cursor == "" {
			assert.Equal(t, 3, page)
			break
		}
	}
	assert.Len(t, seen, 7)
}

// Numbers and strings in a context come out as they went in.
func TestContextIsNotRead(t *testing.T) {
	b := setup(t)
	b.pipe()
	context := `{"n":12345678901234567890.10,"s":"<&\u00e9>","z":1,"a":{}}`
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":`+context+`}`)).ID
	a := b.call("GET", "/v1/tasks/"+id, "")
	var doc struct{ Context json.RawMessage }
	require.NoError(t, json.Unmarshal(a.body, &doc))
	assert.Equal(t, context, string(doc.Context))
	l, _ := b.lease()
	assert.Equal(t, context, string(l.Context))
}
