package httpapi_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// failSecond completes the first stage of a task, and lets the second fail for good.
func (b *bundle) failSecond() string {
	b.t.Helper()
	id, path := b.submitOne()
	_, token := b.lease()
	require.Equal(b.t, 200, b.callAs(token, "POST", path+"/complete",
		`{"output":"from first"}`).status)
	_, token = b.lease()
	require.Equal(b.t, 200, b.callAs(token, "POST", path+"/fail",
		`{"error":"no","retryable":false}`).status)
	return id
}

func TestRedrive(t *testing.T) {
	b := setup(t)
	b.pipe()
	for name, c := range map[string]struct{ body, stage, context string }{
		"where it ended":       {``, "second", `"from first"`},
		"from the start":       {`{"stage":"first"}`, "first", `1`},
		"with another context": {`{"context":{"edited":true}}`, "second", `{"edited":true}`},
		"both":                 {`{"stage":"first","context":[2]}`, "first", `[2]`},
	} {
		id := b.failSecond()
		task := read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+id+"/redrive", c.body))
		assert.Equal(t, []any{asyncflow.StatusPending, c.stage, 1},
			[]any{task.Status, task.Stage, task.Attempt}, name)
		l, token := b.lease()
		assert.Equal(t, []any{id, c.stage, 1, c.context},
			[]any{l.ID.String(), l.Stage, l.Attempt, string(l.Context)}, name)
		assert.Equal(t, 4, l.Seq, "%s: the fence goes on growing", name)
		require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+id+"/complete", "").status)
		if c.stage == "first" { // nothing new came out of it: the context passes on unchanged
			l, token = b.lease()
			assert.Equal(t, []any{"second", c.context}, []any{l.Stage, string(l.Context)}, name)
			require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+id+"/complete",
				"").status)
		}
		assert.Equal(t, asyncflow.StatusSucceeded,
			read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Status, name)
		assert.Equal(t, 409, b.call("POST", "/v1/tasks/"+id+"/redrive", "").status,
			"%s: it has succeeded", name)
	}
	assert.Empty(t, read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&status=failed", "")).Data)
}

func TestRedriveRefused(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	assert.Equal(t, 409, b.call("POST", "/v1/tasks/"+id+"/redrive", "").status, "it is pending")
	b.lease()
	assert.Equal(t, 409, b.call("POST", "/v1/tasks/"+id+"/redrive", "").status, "it is running")
	assert.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", "").status)
	for body, field := range map[string]string{`{"stage":"nope"}`: "stage",
		`{"stage":"second"}`: "stage", `{"from":"first"}`: "from"} {
		a := b.call("POST", "/v1/tasks/"+id+"/redrive", body)
		require.Equal(t, 400, a.status, "%s: %s", body, a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
	}
	assert.Equal(t, 404, b.call("POST", "/v1/tasks/pipe.1.999/redrive", "").status)
	assert.Equal(t, asyncflow.StatusPending,
		read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+id+"/redrive", "")).Status,
		"a cancelled one goes on")
}

// Of several redrives at once, one counts: there is one token row of the task.
func TestRedriveAtOnce(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := b.failSecond()
	var wg sync.WaitGroup
	statuses := make([]int, 10)
	for i := range statuses {
		wg.Go(func() { statuses[i] = b.call("POST", "/v1/tasks/"+id+"/redrive", "").status })
	}
	wg.Wait()
	ok := 0
	for _, s := range statuses {
		assert.Contains(t, []int{200, 409}, s)
		if s == 200 {
			ok++
		}
	}
	assert.Equal(t, 1, ok)
	var rows int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.ready_1`).Scan(&rows))
	assert.Equal(t, 1, rows)
}
