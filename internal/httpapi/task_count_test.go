package httpapi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// The tasks of a list are counted at once.
func TestTaskCount(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	b.failSecond()
	for i := range 3 {
		read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
			fmt.Sprintf(`{"type":"pipe","context":%d,"delay":"%dh","key":"k%d"}`, i, i%2, i)))
	}
	for query, want := range map[string]int64{
		"":                                      4,
		"&status=failed":                        1,
		"&status=failed&stage=second&error=NO":  1,
		"&status=waiting":                       1,
		"&key=k1":                               1,
		"&since=2030-01-01T00:00:00Z":           0,
		"&until=2030-01-01T00:00:00Z":           4,
		"&parent=pipe.1.1":                      0,
		"&status=pending&stage=first&error=any": 0,
		"&ended_since=2026-01-01T00:00:00Z":     1,
		"&ended_until=2026-01-01T00:00:00Z":     0,
		"&attempts=1":                           4,
		"&attempts=2":                           0,
		"&code=none":                            0,
		"&flow_key=none":                        0,
	} {
		assert.Equal(t, api.TaskCount{Count: want, Exact: true}, read[api.TaskCount](b, 200,
			b.call("GET", "/v1/tasks/count?type=pipe"+query, "")), query)
	}
	for query, want := range map[string]struct {
		status int
		field  string
	}{
		"?parent=other.1.1": {400, "parent"},
		"?attempts=0":       {400, "attempts"},
		"?attempts=40000":   {400, "attempts"},
		"?code=no%20code":   {400, "code"},
		"?flow_key=":        {400, "flow_key"},
		"?ended_since=then": {400, "ended_since"},
		"?ended_since=2026-01-02T00:00:00Z&ended_until=2026-01-01T00:00:00Z": {400, "ended_until"},
		"?type=nope":                   {404, "type"},
		"?type=pipe&status=other":      {400, "status"},
		"?type=pipe&parent=x":          {400, "parent"},
		"?type=pipe&parent=other.1.1":  {400, "parent"},
		"?type=pipe&text=a":            {400, "text"},
		"?type=pipe&error=a%00b":       {400, "error"},
		"?type=pipe&since=then":        {400, "since"},
		"?type=pipe&cursor=a&limit=10": {400, "cursor"},
	} {
		a := b.call("GET", "/v1/tasks/count"+query, "")
		require.Equal(t, want.status, a.status, "%s: %s", query, a.body)
		require.NotEmpty(t, a.problem.Errors, "%s: %s", query, a.body)
		assert.Equal(t, want.field, a.problem.Errors[0].Field, query)
	}
	path := "/v1/tasks/count?type=pipe"
	assert.Equal(t, 200, b.callAs(b.newToken("acme", auth.ScopeRead), "GET", path, "").status)
	assert.Equal(t, 403, b.callAs(b.newToken("acme", auth.ScopeOperate), "GET", path, "").status)
	assert.Equal(t, 404, b.callAs(b.newToken("other", auth.ScopeRead), "GET", path, "").status)
}

// All tasks that match are counted in the background, by an operation.
func TestCountAll(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.failSecond()
	for range 3 {
		read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`))
	}
	begun := read[api.Operation](b, 202, b.call("POST", "/v1/tasks/count",
		`{"type":"pipe","status":"failed","stage":"second","error":"NO"}`))
	assert.Equal(t, []any{api.OperationKind("count"), api.OperationState("running"), int64(0)},
		[]any{begun.Kind, begun.State, begun.Done})
	assert.Equal(t, api.OperationFilter{Status: asyncflow.StatusFailed, Stage: "second",
		Error: "NO"}, begun.Filter)
	o := b.carryOn(begun)
	assert.Equal(t, []any{api.OperationState("done"), int64(1), int64(1), int64(0)},
		[]any{o.State, o.Total, o.Done, o.Skipped})
	assert.Equal(t, begun.Filter, o.Filter)
	since := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	o = b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/count",
		`{"type":"pipe","since":"`+since.Format(time.RFC3339)+`"}`)))
	assert.Equal(t, []any{int64(4), int64(4), int64(0)}, []any{o.Total, o.Done, o.Skipped})
	assert.True(t, since.Equal(o.Filter.Since))
	o = read[api.Operation](b, 202, b.call("POST", "/v1/tasks/count", `{"type":"pipe"}`))
	read[api.Operation](b, 202, b.call("POST", "/v1/tasks/count", `{"type":"pipe"}`))
	a := b.call("POST", "/v1/tasks/count", `{"type":"pipe"}`)
	assert.Equal(t, 409, a.status, "two are running: %s", a.body)
	assert.Equal(t, api.OperationState("stopped"), read[api.Operation](b, 200,
		b.call("POST", "/v1/operations/"+o.ID+"/stop", "")).State)

	for body, want := range map[string]struct {
		status int
		field  string
	}{
		`{}`:                                {400, "type"},
		`{"type":"nope"}`:                   {404, "type"},
		`{"type":"pipe","status":"other"}`:  {400, "status"},
		`{"type":"pipe","pace":1}`:          {400, "pace"},
		`{"type":"pipe","error":"a\u0000"}`: {400, "error"},
		`{"type":"pipe","since":"2026-11-21T00:00:00Z","until":"2026-11-20T00:00:00Z"}`: {400,
			"until"},
	} {
		a := b.call("POST", "/v1/tasks/count", body)
		require.Equal(t, want.status, a.status, "%s: %s", body, a.body)
		require.NotEmpty(t, a.problem.Errors, "%s: %s", body, a.body)
		assert.Equal(t, want.field, a.problem.Errors[0].Field, body)
	}
	reader := b.newToken("acme", auth.ScopeRead)
	assert.Equal(t, 403, b.callAs(reader, "POST", "/v1/tasks/count", `{"type":"pipe"}`).status)
	assert.Equal(t, 200, b.callAs(reader, "GET", "/v1/operations/"+o.ID, "").status)
}
