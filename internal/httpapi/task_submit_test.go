package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// The hand-written document equals the one that the contract's type gives.
func TestSubmittedByHand(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[a-z][a-z0-9_-]{0,39}`)
	zones := rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", -5*3600-1800)})
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "second"),
			rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond"))
		written, encoded := httpapi.SubmittedDocument(store.Submitted{
			ID: asyncflow.NewTaskID(name.Draw(t, "type"),
				rapid.IntRange(1, 1<<22-1).Draw(t, "position"),
				rapid.Int64Range(1, 1<<40-1).Draw(t, "sequence")),
			Stage: name.Draw(t, "stage"),
			Status: rapid.SampledFrom([]asyncflow.Status{asyncflow.StatusPending,
				asyncflow.StatusWaiting, asyncflow.StatusSucceeded}).Draw(t, "status"),
			OrderTime: rapid.SampledFrom([]time.Time{{}, at.In(zones.Draw(t, "zone"))}).Draw(t,
				"order time"),
			WaitsUntil: rapid.SampledFrom([]time.Time{{}, at.UTC()}).Draw(t, "waits until"),
			Existing:   rapid.Bool().Draw(t, "existing"),
		})
		require.Equal(t, string(encoded), string(written))
	})
}

// There must be one entry in a list of priorities for each stage of the type, in every call that
// accepts one.
func TestPriorityForEachStage(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/one",
		`{"stages":[{"name":"only"}]}`).status)
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"delay":"1h"}`)).ID
	for body, want := range map[string]string{
		`"type":"pipe","priority":[60,0]`: "",
		`"type":"pipe","priority":[60]`:   "", // the same as 60
		`"type":"pipe","priority":60`:     "",
		`"type":"one","priority":[60]`:    "",
		`"type":"pipe","priority":[60,0,7]`: "priority has 3 entries; pipe takes one number, or a list " +
			"of 2: one for each stage",
		`"type":"one","priority":[60,0]`: "priority has 2 entries; one takes one number, or a list " +
			"of 1: one for each stage",
	} {
		calls := []answer{
			b.call("POST", "/v1/tasks", `{"context":1,`+body+`}`),
			b.call("PUT", "/v1/schedules/tick", `{"context":1,"every":"1h",`+body+`}`),
		}
		if rest, ok := strings.CutPrefix(body, `"type":"pipe",`); ok {
			calls = append(calls, b.call("PATCH", "/v1/tasks/"+id, `{`+rest+`}`))
		}
		for i, a := range calls {
			if want == "" {
				assert.Less(t, a.status, 300, "%d: %s: %s", i, body, a.body)
				continue
			}
			assert.Equal(t, []any{400, "priority", want},
				[]any{a.status, a.problem.Errors[0].Field, a.problem.Detail}, "%d: %s", i, body)
		}
		item := read[api.SubmittedBatch](b, 201,
			b.call("POST", "/v1/tasks/batch", `{"tasks":[{"context":1,`+body+`}]}`)).Tasks[0]
		assert.Equal(t, want, item.Error.Detail, body)
	}
}
