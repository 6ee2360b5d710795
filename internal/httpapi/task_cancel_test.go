package httpapi_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// A task can be cancelled in every state but a final one, once. After that the attempt under way
// doesn't count.
func TestCancel(t *testing.T) {
	b := setup(t)
	b.pipe()
	cancel := func(id, body string) answer {
		return b.call("POST", "/v1/tasks/"+id+"/cancel", body)
	}

	pending, _ := b.submitOne()
	task := read[api.Task](b, 200, cancel(pending, `{"reason":"withdrawn"}`))
	assert.Equal(t, []any{asyncflow.StatusCancelled, "withdrawn", "first"},
		[]any{task.Status, task.Error, task.Stage})
	assert.NotZero(t, task.FinishedAt)
	assert.Equal(t, 200, cancel(pending, "").status, "again changes nothing")

	waiting := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"delay":"1h"}`)).ID
	assert.Equal(t, asyncflow.StatusCancelled, read[api.Task](b, 200, cancel(waiting, "")).Status)

	retried, path := b.submitOne()
	_, token := b.lease()
	assert.Equal(t, 200, b.callAs(token, "POST", path+"/fail",
		`{"error":"no","retry_after":"1s"}`).status)
	assert.Equal(t, asyncflow.StatusCancelled, read[api.Task](b, 200, cancel(retried, "")).Status,
		"while its retry is due")

	running, path := b.submitOne()
	l, token := b.lease()
	assert.Equal(t, running, l.ID.String(), "nothing of the others is left to lease")
	// the node remembers the lease for a while
	b.committer.Accept("acme", l, l.Until, store.Seen{}, func(error) {})
	assert.Equal(t, asyncflow.StatusCancelled, read[api.Task](b, 200, cancel(running, "")).Status)
	assert.Equal(t, asyncflow.StatusCancelled,
		read[api.HeartbeatResult](b, 200, b.callAs(token, "POST", path+"/heartbeat", "")).Status,
		"the worker learns of it")
	a := b.callAs(token, "POST", path+"/complete", "")
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "cancelled")

	done, path := b.submitOne()
	_, token = b.lease()
	assert.Equal(t, 200, b.callAs(token, "POST", path+"/fail",
		`{"error":"x","retryable":false}`).status)
	a = cancel(done, "")
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "it has failed")

	assert.Equal(t, 404, cancel("pipe.1.999", "").status)
	assert.Equal(t, 400, cancel(done, `{"why":"x"}`).status)
	list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe&status=cancelled", ""))
	assert.Len(t, list.Data, 4)
	assert.Len(t, read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&status=failed", "")).Data, 1)
	attempts := read[api.AttemptList](b, 200,
		b.call("GET", "/v1/tasks/"+running+"/attempts", "")).Data
	require.Len(t, attempts, 1)
	assert.Equal(t, []any{api.AttemptOutcome("cancelled"), api.AttemptFinal("cancelled")},
		[]any{attempts[0].Outcome, attempts[0].Final})
}

// Of a cancel and a completion at once, exactly one counts.
func TestCancelRacesCompletion(t *testing.T) {
	b := setup(t)
	b.call("PUT", "/v1/task-types/pipe", `{"stages":[{"name":"only"}]}`)
	for range 20 {
		id, path := b.submitOne()
		_, token := b.lease()
		var wg sync.WaitGroup
		var cancelled, completed int
		wg.Go(func() { cancelled = b.call("POST", "/v1/tasks/"+id+"/cancel", "").status })
		wg.Go(func() { completed = b.callAs(token, "POST", path+"/complete", "").status })
		wg.Wait()
		status := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Status
		if status == asyncflow.StatusCancelled {
			assert.Equal(t, []int{200, 409}, []int{cancelled, completed})
		} else {
			assert.Equal(t, asyncflow.StatusSucceeded, status)
			assert.Equal(t, []int{409, 200}, []int{cancelled, completed})
		}
		assert.Len(t, read[api.AttemptList](b, 200,
			b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data,
			1)
	}
}
