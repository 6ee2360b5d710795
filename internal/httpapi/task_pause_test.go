package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

func TestPauseTask(t *testing.T) {
	b := setup(t)
	id := b.parent()
	path := "/v1/tasks/" + id
	since := read[api.Task](b, 200, b.call("POST", path+"/pause", `{"reason":"no disk"}`)).Paused
	require.NotNil(t, since)
	assert.Equal(t, "no disk", since.Reason)
	assert.Equal(t, since, read[api.Task](b, 200, b.call("POST", path+"/pause", ``)).Paused)
	assert.Equal(t, since, read[api.Task](b, 200, b.call("GET", path, "")).Paused)
	assert.Nil(t, read[api.Task](b, 200, b.call("POST", path+"/resume", ``)).Paused)
	assert.Nil(t, read[api.Task](b, 200, b.call("GET", path, "")).Paused)

	b.pipe()
	plain, _ := b.submitOne()
	for _, call := range []string{"/pause", "/resume"} {
		a := b.call("POST", "/v1/tasks/"+plain+call, "")
		assert.Equal(t, 409, a.status)
		assert.Equal(t, "task "+plain+" doesn't wait for children", a.problem.Detail)
		assert.Equal(t, 404, b.call("POST", "/v1/tasks/tree.1.4711"+call, "").status)
	}
}

// The events of a task tell how far its children are, but not each change at once.
func TestEventsOfChildren(t *testing.T) {
	b := setup(t)
	id := b.parent()
	e, a := b.follow(t.Context(), b.token, id, "1")
	require.Equal(t, 200, a.status)
	begin, seen := time.Now(), 0
	until := func(want func(api.Task) bool) {
		t.Helper()
		for task := e.task(); ; task = e.task() {
			seen++
			require.NotNil(t, task.Children)
			if want(task) {
				return
			}
		}
	}
	until(func(task api.Task) bool { return task.Children.Pending == 2 })
	child, token := b.leaseOf("tree")
	until(func(task api.Task) bool { return task.Children.Running == 1 })
	require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+child.ID.String()+"/complete",
		"{}").status)
	until(func(task api.Task) bool {
		return *task.Children == api.Children{Total: 2, Pending: 1, Succeeded: 1}
	})
	for range 30 {
		require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/pause", ``).status)
		require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/resume", ``).status)
	}
	require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/pause", `{"reason":"last"}`).status)
	until(func(task api.Task) bool {
		return task.Paused != nil && task.Paused.Reason == "last" && task.Children.Waiting == 1
	})
	assert.LessOrEqual(t, seen, int(time.Since(begin)/(200*time.Millisecond))+2)
}
