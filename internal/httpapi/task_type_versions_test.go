package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

// The versions of a type are listed, and one of them can be put again as it is.
func TestTaskTypeVersions(t *testing.T) {
	b := setup(t)
	const path = "/v1/task-types/mail"
	put := func(body string) api.TaskType {
		t.Helper()
		a := b.call(http.MethodPut, path, body)
		require.Less(t, a.status, 300, "%s", a.body)
		return read[api.TaskType](b, a.status, a)
	}
	put(`{"stages":[{"name":"send","timeout":"10s"}],"retention":{"tasks":"30d","context":"7d"}}`)
	put(`{"stages":[{"name":"send","timeout":"20s"}]}`)
	list := read[api.TaskTypeVersionList](b, 200, b.call(http.MethodGet, path+"/versions", "")).Data
	require.Len(t, list, 2)
	assert.Equal(t, []any{2, true, 1, false},
		[]any{list[0].Version, list[0].Current, list[1].Version, list[1].Current})

	a := b.call(http.MethodGet, path+"/versions/1", "")
	first := read[api.TaskTypeVersion](b, 200, a)
	assert.Equal(t, "mail", first.Name)
	assert.Equal(t, "30d, contents 7d", first.Spec.Retention.String())
	var doc struct{ Spec json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(a.body), &doc))
	third := put(string(doc.Spec))
	assert.Equal(t, 3, third.Version)
	assert.Equal(t, first.Spec.Stages, third.Stages)
	assert.Equal(t, first.Spec.Retention, third.Retention)

	for _, call := range []string{"/v1/task-types/nothing/versions",
		"/v1/task-types/nothing/versions/1", path + "/versions/4"} {
		a := b.call(http.MethodGet, call, "")
		assert.Equal(t, []any{404, "not_found"}, []any{a.status, a.problem.Code}, call)
	}
	assert.Equal(t, 400, b.call(http.MethodGet, path+"/versions/0", "").status)
}
