package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// A bulk call by ids concerns these tasks only, as far as they match the rest. The ids say
// their types.
func TestBulkByIDs(t *testing.T) {
	b := setup(t)
	b.pipe()
	first, second, third := b.failSecond(), b.failSecond(), b.failSecond()
	keyed := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"key":"k","delay":"1h"}`)).ID
	free := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"delay":"1h"}`)).ID
	for more, want := range map[string]int64{"": 2, `,"key":"k"`: 1, `,"key":"other"`: 0} {
		assert.Equal(t, want, read[api.Count](b, 200, b.call("POST", "/v1/tasks/cancel",
			fmt.Sprintf(`{"ids":[%q,%q],"dry_run":true%s}`, keyed, free, more))).Count, more)
	}
	body := func(more string) string {
		return fmt.Sprintf(`{"ids":[%q,%q,%q]%s}`, second, first, second, more)
	}
	assert.EqualValues(t, 2, read[api.Count](b, 200,
		b.call("POST", "/v1/tasks/redrive", body(`,"dry_run":true`))).Count)
	assert.EqualValues(t, 0, read[api.Count](b, 200, b.call("POST", "/v1/tasks/redrive",
		body(`,"all_types":true,"status":"cancelled","dry_run":true`))).Count)
	o := b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/redrive", body(""))))
	assert.Equal(t, []any{api.OperationState("done"), int64(2), int64(2), "pipe"},
		[]any{o.State, o.Total, o.Done, o.Type})
	assert.Equal(t, []string{second, first, second}, o.Filter.Ids)
	statuses := map[string]asyncflow.Status{first: asyncflow.StatusPending,
		second: asyncflow.StatusPending, third: asyncflow.StatusFailed}
	for id, want := range statuses {
		task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
		assert.Equal(t, want, task.Status)
	}
	o = b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/delay",
		fmt.Sprintf(`{"ids":[%q,"other.1.1"],"delay":"1h"}`, first))))
	assert.Equal(t, []any{int64(1), true}, []any{o.Done, o.Filter.AllTypes})
}

// Bad ids are refused, each by its place.
func TestBadIDs(t *testing.T) {
	b := setup(t)
	b.pipe()
	many := strings.Repeat(`"pipe.1.1",`, 1000) + `"pipe.1.1"`
	for body, field := range map[string]string{
		`{"ids":[]}`:                                       "ids",
		`{"type":"pipe","ids":["pipe.1.1","x"]}`:           "ids.1",
		`{"type":"pipe","ids":["other.1.1"]}`:              "ids.0",
		`{"type":"pipe","ids":[` + many + `]}`:             "ids",
		`{"type":"pipe","all_types":true,"ids":["a.1.1"]}`: "",
	} {
		answer := b.call("POST", "/v1/tasks/cancel", body)
		problem := read[api.Problem](b, 400, answer)
		if field != "" {
			assert.Contains(t, fmt.Sprint(problem.Errors), field, "%.60s", body)
		}
	}
}
