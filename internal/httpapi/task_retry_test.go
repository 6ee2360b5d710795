package httpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

// A retry interval in the form of an expression is accepted, shown as it was given, and evaluated
// with the attempt that failed, its status and its error.
func TestRetryIntervals(t *testing.T) {
	b := setup(t)
	for name, c := range map[string]struct {
		spec        string  // of the task type
		own         string  // the task's policy
		least, most float64 // seconds from the failure to the next attempt
	}{
		"poly": {`{"stages":[{"name":"only","retry":{"interval":"poly"}}]}`, `{}`, 15, 45},
		"expression": {`{"stages":[{"name":"only","retry":{"interval":"error contains '<busy>' && ` +
			`attempt < 2 ? 40 + 2 * rand : 5"}}]}`, `{}`, 40, 42},
		"type": {`{"stages":[{"name":"only"}],"retry":{"interval":"status == 0 ? 100 : 7"}}`, `{}`,
			100, 100},
		"stage": {`{"stages":[{"name":"only","retry":{"interval":"attempt + ` +
			`69"}}],"retry":{"interval":"poly"}}`, `{}`, 70, 70},
		"task": {`{"stages":[{"name":"only","retry":{"interval":"poly"}}]}`,
			`{"interval":"min(90, 10 ** 6)"}`, 90, 90},
		"no number": {`{"stages":[{"name":"only","retry":{"interval":"-1"}}]}`, `{}`, 1, 1},
	} {
		require.Contains(t, []int{200, 201}, b.call("PUT", "/v1/task-types/pipe", c.spec).status,
			name)
		var asked api.TaskTypeSpec
		require.NoError(t, json.Unmarshal([]byte(c.spec), &asked))
		shown := b.call("GET", "/v1/task-types/pipe", "")
		got := read[api.TaskType](b, 200, shown)
		assert.Equal(t, asked.Retry, got.Retry, name)
		if interval := asked.Stages[0].Retry.Interval; !interval.IsZero() {
			assert.Equal(t, interval, got.Stages[0].Retry.Interval, name)
			assert.Contains(t, string(shown.body), fmt.Sprintf(`"interval":"%s"`, interval),
				"%s: character by character", name)
		}
		again := read[api.TaskType](b, 200, b.call("PUT", "/v1/task-types/pipe", c.spec))
		assert.Equal(t, got.Version, again.Version, "%s: the same document changes nothing", name)

		id := read[api.SubmittedTask](b, 201,
			b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"retry":`+c.own+`}`)).ID
		_, token := b.lease()
		before := b.store.Clock.Now()
		require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+id+"/fail",
			`{"error":"they are <busy>"}`).status, name)
		after := b.store.Clock.Now()
		attempts := read[api.AttemptList](b, 200,
			b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
		require.Len(t, attempts, 1, name)
		next := attempts[0].NextTime // in microseconds
		assert.False(t, next.Before(before.Add(time.Duration(c.least*1e9)-time.Microsecond)),
			"%s: %v after %v", name, next, before)
		assert.False(t, next.After(after.Add(time.Duration(c.most*1e9)+time.Microsecond)),
			"%s: %v after %v", name, next, after)
		// so that the next lease doesn't get it
		require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", "").status, name)
	}
}
