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

// The retention of contents is read back as it was written. What is wrong with one is said by name.
func TestRetentionOfContents(t *testing.T) {
	b := setup(t)
	const path = "/v1/task-types/mail"
	put := func(retention string) answer {
		return b.call(http.MethodPut, path,
			`{"stages":[{"name":"send"}],"retention":`+retention+`}`)
	}
	for _, text := range []string{`{"tasks":"30d","context":"7d"}`, `"30d"`} {
		require.Less(t, put(text).status, 300)
		got := b.call(http.MethodGet, path, "")
		assert.Contains(t, string(got.body), `"retention":`+text)
	}
	for text, want := range map[string]string{
		`"7x"`:                          `retention is "7x"; it must be: a duration such as 90d or 2160h`,
		`7`:                             "retention must be a string, or an object",
		`{}`:                            "retention must have at least 1 field",
		`{"contexts":"7d"}`:             "retention.contexts is not a known field",
		`{"context":"7x"}`:              `retention.context is "7x"; it must be: a Go-style duration`,
		`{"context":"59s"}`:             "retention.context is 59s; it must be 1m to 87600h",
		`{"tasks":"1h","context":"2h"}`: "retention.context is 2h; tasks are kept for 1h, and",
	} {
		t.Run(text, func(t *testing.T) {
			a := put(text)
			assert.Equal(t, 400, a.status)
			assert.Contains(t, a.problem.Detail, want)
		})
	}
}
