package httpapi_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

var (
	long  = strings.Repeat("x", 300)
	zeros = strings.Repeat("0", 32)
)

const labels = `"user":"customer-17","tags":["eu","nightly"],"metadata":{"order":"4711"},` +
	`"trace":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`

// isLabelled requires that a task carries the labels.
func isLabelled(t *testing.T, task api.Task) {
	t.Helper()
	assert.Equal(t, []any{"customer-17", []string{"eu", "nightly"}, api.Metadata{"order": "4711"},
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		[]any{task.User, task.Tags, task.Metadata, task.Trace})
}

// An entry of the metadata with an empty value is found like any other, also where the field is
// searchable. An entry without a name is refused.
func TestMetadataWithoutAValue(t *testing.T) {
	b := setup(t)
	for _, fields := range []string{`[]`, `["metadata.a"]`} {
		b.call("PUT", "/v1/task-types/pipe",
			`{"stages":[{"name":"first"}],"searchable":`+fields+`}`)
		for _, metadata := range []string{`{"a":""}`, `{"a":"1"}`, `{"b":""}`} {
			require.Equal(t, 201, b.call("POST", "/v1/tasks",
				`{"type":"pipe","context":1,"metadata":`+metadata+`}`).status)
		}
	}
	for query, want := range map[string]int{"a=": 2, "a=1": 2, "b=": 2, "c=": 0} {
		list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?metadata="+query, "")).Data
		assert.Len(t, list, want, query)
	}
	o := b.carryOn(read[api.Operation](b, 202,
		b.call("POST", "/v1/tasks/cancel", `{"type":"pipe","metadata":"a="}`)))
	assert.EqualValues(t, 2, o.Done)
	for _, query := range []string{"=1", "a", "="} {
		refused := b.call("GET", "/v1/tasks?metadata="+query, "")
		assert.Equal(t, 400, refused.status, query)
		assert.Contains(t, string(refused.body), `"metadata"`, query)
	}
}

// Labels are shown with a task, in lists and streams, and lists, counts and bulk calls find it by
// them.
func TestLabels(t *testing.T) {
	b := setup(t)
	b.pipe()
	one := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,`+labels+`}`)).ID
	batch := read[api.SubmittedBatch](b, 201, b.call("POST", "/v1/tasks/batch",
		`{"tasks":[{"type":"pipe","context":1,`+labels+`},{"type":"pipe","context":1}]}`))
	for _, id := range []string{one, batch.Tasks[0].Task.ID} {
		isLabelled(t, b.task(id))
	}
	for _, task := range read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?user=customer-17", "")).Data {
		isLabelled(t, task)
	}
	for query, want := range map[string]int{"user=customer-17": 2, "user=customer": 0,
		"tags=eu,nightly": 2, "tags=eu,us": 0, "any_tags=eu,us": 2, "metadata=order=4711": 2,
		"metadata=order=47": 0, "metadata=shop=4711": 0, "": 3} {
		list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?"+query, "")).Data
		assert.Len(t, list, want, query)
		n := read[api.TaskCount](b, 200, b.call("GET", "/v1/tasks/count?type=pipe&"+query, ""))
		assert.EqualValues(t, want, n.Count, query)
	}
	o := b.carryOn(read[api.Operation](b, 202, b.call("POST", "/v1/tasks/cancel",
		`{"type":"pipe","user":"customer-17","tags":"eu,nightly","any_tags":"us,eu",`+
			`"metadata":"order=4711"}`)))
	assert.EqualValues(t, 2, o.Done)
	assert.Equal(t, []string{"customer-17", "eu,nightly", "us,eu", "order=4711"},
		[]string{o.Filter.User, o.Filter.Tags, o.Filter.AnyTags, o.Filter.Metadata})
	journal := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+one+"/attempts", ""))
	assert.Equal(t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", journal.Trace)
	stream := b.call("GET", "/v1/tasks/"+one+"/events", "") // it ends with the task
	_, event, found := strings.Cut(string(stream.body), "event: task\ndata: ")
	require.True(t, found, "%s", stream.body)
	event, _, _ = strings.Cut(event, "\n")
	var streamed api.Task
	require.NoError(t, json.Unmarshal([]byte(event), &streamed))
	isLabelled(t, streamed)
}

// A claimer gets the labels with its task.
func TestLabelsOfAClaim(t *testing.T) {
	b := setup(t)
	b.claimed()
	read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"judge","context":1,`+labels+`}`))
	all := b.claim("anna", "")
	require.Len(t, all, 1)
	d := all[0]
	isLabelled(t, api.Task{User: d.User, Tags: d.Tags, Metadata: d.Metadata, Trace: d.Trace})
}

func TestLabelsOfSchedules(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/schedules/nightly",
		`{"type":"pipe","context":1,"cron":"@daily",`+labels+`}`).status)
	s := read[api.Schedule](b, 200, b.call("GET", "/v1/schedules/nightly", ""))
	assert.Equal(t, []any{"customer-17", []string{"eu", "nightly"}, api.Metadata{"order": "4711"}},
		[]any{s.User, s.Tags, s.Metadata})
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/schedules/nightly/trigger", "")).ID
	assert.Equal(t, "customer-17", read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).User)
}

func TestBadLabels(t *testing.T) {
	b := setup(t)
	b.pipe()
	for body, field := range map[string]string{
		`"user":""`:              "user",
		`"user":7`:               "user",
		`"tags":"eu"`:            "tags",
		`"tags":["a b"]`:         "tags",
		`"tags":["a","a"]`:       "tags",
		`"metadata":{"a":1}`:     "metadata.a",
		`"metadata":{"a b":"1"}`: "metadata",
		`"metadata":[]`:          "metadata",
		`"trace":"00-1-2-3"`:     "trace",
		`"trace":"00-` + zeros + `-00f067aa0ba902b7-01"`: "trace",
		`"metadata":{"a":"\u0000"}`:                      "metadata.a",
		`"metadata":{"a":"` + long + `"}`:                "metadata.a",
		`"tags":["` + long + `"]`:                        "tags",
		`"user":"` + long + `"`:                          "user",
		`"labels":{"user":"customer-17"}`:                "labels",
		`"metadata":{"a":"1","a":"2"}`:                   "metadata.a",
	} {
		a := b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,`+body+`}`)
		require.Equal(t, 400, a.status, "%s: %s", body, a.body)
		assert.Contains(t, a.problem.Detail, field, "%s: %s", body, a.body)
	}
	for query, field := range map[string]string{"user=": "user", "tags=a,,b": "tags",
		"any_tags=a%20b": "any_tags", "metadata=order": "metadata", "metadata=a%20b=c": "metadata",
		"tags=" + url.QueryEscape(long): "tags"} {
		a := b.call("GET", "/v1/tasks?"+query, "")
		require.Equal(t, 400, a.status, "%s: %s", query, a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, query)
	}
}

// Filters by labels that nobody means well are refused with the field and what it may be, by lists
// and by bulk calls. What looks like a pattern or a path only stands for itself.
func TestHostileLabelFilters(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"user":"a",`+
		`"tags":["eu"],"metadata":{"a.b":".*","a":"%"}}`).status)
	many := strings.Repeat("t,", 17)[:33]
	for _, c := range []struct{ field, value, says string }{
		{"tags", many, "has 17 tags; the limit is 16"},
		{"any_tags", many, "has 17 tags; the limit is 16"},
		{"tags", strings.Repeat("t", 1101), "1100"},
		{"tags", "eu';--", "can't be a tag"},
		{"any_tags", "$.tags[*]", "can't be a tag"},
		{"tags", "(a+)+", "can't be a tag"},
		{"tags", "eu\x00", ""},
		{"metadata", "$.a=1", "must be name=value"},
		{"metadata", "a'->>'b=1", "must be name=value"},
		{"metadata", "=1", ""},
		{"metadata", strings.Repeat("n", 65) + "=1", "must be name=value"},
		{"metadata", "a=" + strings.Repeat("v", 300), "300"},
		{"user", strings.Repeat("u", 256), "255"},
	} {
		list := b.call("GET", "/v1/tasks?type=pipe&"+c.field+"="+url.QueryEscape(c.value), "")
		bulk := map[string]any{"type": "pipe", c.field: c.value}
		body, err := json.Marshal(bulk)
		require.NoError(t, err)
		for what, a := range map[string]answer{"list": list,
			"cancel": b.call("POST", "/v1/tasks/cancel", string(body))} {
			require.Equal(t, 400, a.status, "%s by %s: %s", what, c.field, a.body)
			assert.Equal(t, c.field, a.problem.Errors[0].Field, "%s: %s", what, a.body)
			assert.Contains(t, string(a.body), c.says, "%s by %s", what, c.field)
		}
	}
	for value, want := range map[string]int{"a.b=.*": 1, "a.b=x": 0, "a=%": 1, "a=_": 0,
		"b=.*": 0} {
		list := read[api.TaskList](b, 200,
			b.call("GET", "/v1/tasks?type=pipe&metadata="+url.QueryEscape(value), ""))
		assert.Len(t, list.Data, want, value)
	}
}
