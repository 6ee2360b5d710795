package httpapi_test

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// lease leases the one due task, like a dispatcher.
func (b *bundle) lease() (asyncflow.Lease, string) {
	b.t.Helper()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(b.t, err)
	var leases []asyncflow.Lease
	require.Eventually(b.t, func() bool {
		leases, _, err = b.store.Lease(b.t.Context(), pipe, 1)
		return err == nil && len(leases) == 1
	}, patience, 20*time.Millisecond)
	l := leases[0]
	return l, b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID, Seq: l.Seq,
		Expiry: time.Now().Add(time.Hour)})
}

func TestCompletion(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":{"a":1}}`)).ID
	path := "/v1/callbacks/" + id
	l, first := b.lease()
	assert.Equal(t, id, l.ID.String())

	assert.Equal(t, asyncflow.StatusPending,
		read[api.CallbackResult](b, 200,
			b.callAs(first, "POST", path+"/fail", `{"error":"not now"}`)).Status)
	assert.Equal(t, 200, b.callAs(first, "POST", path+"/fail", `{"error":"not now"}`).status,
		"the same outcome again")
	a := b.callAs(first, "POST", path+"/complete", `{}`)
	assert.Equal(t, 409, a.status, "another outcome")
	assert.Contains(t, a.problem.Detail, `ended as "failed"`)

	l, second := b.lease()
	assert.Equal(t, 2, l.Attempt)
	assert.Equal(t, 409, b.callAs(first, "POST", path+"/complete", ``).status,
		"an attempt that is over can't end another")
	for range 2 {
		assert.Equal(t, 200, b.callAs(second, "POST", path+"/complete",
			`{"output":{"x":[1, 2]}}`).status)
	}
	for _, other := range []string{`{"output":{"x":[1,2]}}`, `{"output":3}`, ``} {
		a := b.callAs(second, "POST", path+"/complete", other)
		assert.Equal(t, 409, a.status, "the output %q is not what counts", other)
		assert.Contains(t, a.problem.Detail, `ended as "done" with another output`)
	}

	l, third := b.lease()
	assert.Equal(t, []any{"second", `{"x":[1, 2]}`}, []any{l.Stage, string(l.Context)})
	assert.Equal(t, asyncflow.StatusSucceeded,
		read[api.CallbackResult](b, 200, b.callAs(third, "POST", path+"/complete", ``)).Status,
		"without a body")
	assert.Equal(t, 200, b.callAs(third, "POST", path+"/complete", `{}`).status,
		"without an output, again")
	assert.Equal(t, 409, b.callAs(third, "POST", path+"/complete", `{"output":1}`).status,
		"there was none")
	done := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.JSONEq(t, `{"x":[1,2]}`, string(done.Result), "what the last stage was sent")
	attempts := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	require.Len(t, attempts, 3)
	assert.Equal(t, []api.AttemptOutcome{"failed", "done", "done"},
		[]api.AttemptOutcome{attempts[0].Outcome, attempts[1].Outcome, attempts[2].Outcome})
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

// A report that another node already accepted is answered with the task's present status, although
// this node remembers the lease.
func TestCompletionElsewhere(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	path := "/v1/callbacks/" + id
	l, first := b.lease()
	b.committer.Accept("acme", l, l.Until.Add(time.Hour), store.Seen{}, func(error) {})
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "not now"}
	settled := b.settleElsewhere(pipe, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.store.Clock.Now())})
	require.Equal(t, store.Settled{}, settled)
	_, second := b.lease()
	require.Equal(t, 200, b.callAs(second, "POST", path+"/fail",
		`{"error":"never","retryable":false}`).status)
	_, known := b.committer.Accepted("acme", l.ID, l.Seq)
	require.True(t, known)
	assert.Equal(t, asyncflow.StatusFailed,
		read[api.CallbackResult](b, 200,
			b.callAs(first, "POST", path+"/fail", `{"error":"not now"}`)).Status)
}

// settleElsewhere settles a lease like another node: this node doesn't know its settlements.
func (b *bundle) settleElsewhere(t *store.Type, s asyncflow.Settlement) store.Settled {
	b.t.Helper()
	e := &store.Ending{Settlement: &s}
	require.NoError(b.t, b.store.SettleAgain(b.t.Context(), t, []*store.Ending{e}))
	return e.Settled
}

// Of fifty completions at once, exactly one counts, and all of them are answered with success.
func TestCompletionAtOnce(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID
	_, token := b.lease()
	var wg sync.WaitGroup
	statuses := make([]int, 50)
	for i := range statuses {
		wg.Go(func() {
			statuses[i] = b.callAs(token, "POST", "/v1/callbacks/"+id+"/complete",
				`{"output":1}`).status
		})
	}
	wg.Wait()
	for _, s := range statuses {
		assert.Equal(t, 200, s)
	}
	assert.Len(t, read[api.AttemptList](b, 200,
		b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data, 1)
}

// Of two outcomes at once, from this node or from a worker of another node that answered at once,
// exactly one counts; the other report is answered with a conflict.
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
		wg.Go(func() {
			statuses[i] = b.callAs(token, "POST", path+"/complete", bodies[i%len(bodies)]).status
		})
	}
	wg.Go(func() {
		settled <- b.settleElsewhere(pipe, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.store.Clock.Now())})
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
