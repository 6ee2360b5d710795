package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// A final task can be erased with the scope manage. It says so wherever it is seen, and can't be
// redriven.
func TestEraseTask(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	live, _ := b.submitOne()
	path := "/v1/tasks/" + live
	a := b.call("DELETE", path, "")
	assert.Equal(t, []any{409, "conflict"}, []any{a.status, a.problem.Code})
	assert.Contains(t, a.problem.Detail, "cancel it first")
	require.Equal(t, 200, b.call("POST", path+"/cancel", "").status)

	id := b.failSecond()
	path = "/v1/tasks/" + id
	operator := b.newToken("acme", auth.ScopeOperate, auth.ScopeRead, auth.ScopeSubmit)
	assert.Equal(t, 403, b.callAs(operator, "DELETE", path, "").status)
	assert.Equal(t, 404, b.call("DELETE", "/v1/tasks/pipe.1.999999", "").status)
	assert.Equal(t, 400, b.call("DELETE", "/v1/tasks/nonsense", "").status)
	other := b.newToken("other", auth.ScopeManage)
	assert.Equal(t, 404, b.callAs(other, "DELETE", path, "").status)

	erased := read[api.Task](b, 200, b.call("DELETE", path, ""))
	require.NotNil(t, erased.Erased)
	assert.Equal(t, "test", erased.Erased.By)
	assert.WithinDuration(t, time.Now(), erased.Erased.At, patience)
	assert.Empty(t, erased.Context)
	assert.Empty(t, erased.Error)
	assert.Equal(t, erased, read[api.Task](b, 200, b.call("DELETE", path, "")))
	assert.Equal(t, erased, read[api.Task](b, 200, b.call("GET", path, "")))
	list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe&status=failed", ""))
	require.Len(t, list.Data, 1)
	assert.Equal(t, erased.Erased, list.Data[0].Erased)
	attempts := read[api.AttemptList](b, 200, b.call("GET", path+"/attempts?outputs=true", ""))
	assert.Equal(t, erased.Erased, attempts.Erased)
	for _, one := range attempts.Data {
		assert.Empty(t, one.Output)
		assert.Empty(t, one.Error)
	}
	for _, body := range []string{"", `{"context":1}`, `{"dry_run":true,"dependents":true}`} {
		a = b.call("POST", path+"/redrive", body)
		assert.Equal(t, []any{409, "task_erased"}, []any{a.status, a.problem.Code}, body)
	}
	count := read[api.Count](b, 200, b.call("POST", "/v1/tasks/erase",
		`{"type":"pipe","dry_run":true}`))
	assert.EqualValues(t, 1, count.Count, "the cancelled one")
	o := b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/erase",
		`{"type":"pipe","status":"cancelled","pace":1000}`)))
	assert.Equal(t, []any{api.OperationKind("erase"), int64(1), int64(1)},
		[]any{o.Kind, o.Total, o.Done})
	assert.NotNil(t, read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+live, "")).Erased)
	a = b.call("POST", "/v1/tasks/erase", `{"type":"pipe","status":"running"}`)
	assert.Equal(t, 400, a.status)
	a = b.call("POST", "/v1/tasks/erase", `{}`)
	assert.Equal(t, []any{400, "type"}, []any{a.status, a.problem.Errors[0].Field})
	assert.Equal(t, 404, b.call("POST", "/v1/tasks/erase", `{"type":"none"}`).status)
	_, err := b.db.Exec(t.Context(), `INSERT INTO asyncflow.nodes
		(id, roles, version, started_at, seen_at) VALUES ('old', 'api', '0.0.9', now(), now())`)
	require.NoError(t, err)
	a = b.call("POST", "/v1/tasks/erase", `{"type":"pipe"}`)
	assert.Equal(t, []any{409, "conflict"}, []any{a.status, a.problem.Code})
	assert.Contains(t, a.problem.Detail, "0.0.9")
}
