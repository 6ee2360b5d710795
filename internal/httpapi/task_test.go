package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

func TestWaitForTheEnd(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID
	start := time.Now()
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id+"?wait=50ms", ""))
	assert.Equal(t, asyncflow.StatusPending, task.Status)
	assert.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	got := make(chan api.Task)
	go func() { got <- read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id+"?wait=30s", "")) }()
	l, _ := b.lease()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "never"}
	b.committer.Settle("acme", asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.store.Clock.Now())},
		func(store.Settled) {})
	task = <-got
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	assert.Equal(t, "never", task.Error)
	assert.Less(t, time.Since(start), 29*time.Second, "it was told, and didn't wait to the end")
}

func TestListPages(t *testing.T) {
	b := setup(t)
	b.pipe()
	for i := range 7 {
		b.call("POST", "/v1/tasks", fmt.Sprintf(`{"type":"pipe","context":%d}`, i))
	}
	seen, cursor := map[string]bool{}, ""
	for page := 1; ; page++ {
		list := read[api.TaskList](b, 200,
			b.call("GET", "/v1/tasks?type=pipe&limit=3&cursor="+cursor, ""))
		for _, task := range list.Data {
			seen[task.ID] = true
			assert.Nil(t, task.Context)
		}
		if cursor = list.NextCursor; cursor == "" {
			assert.Equal(t, 3, page)
			break
		}
	}
	assert.Len(t, seen, 7)
}

func TestListKeyAndText(t *testing.T) {
	b := setup(t)
	b.pipe()
	for i := range 3 {
		b.call("POST", "/v1/tasks", fmt.Sprintf(`{"type":"pipe","context":{"n":"%d0%%"},"key":"k%d"}`,
			i, i))
	}
	list := func(query string) api.TaskList {
		return read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe&"+query, ""))
	}
	byKey := list("key=k1")
	require.Len(t, byKey.Data, 1)
	assert.Equal(t, "k1", byKey.Data[0].Key)
	assert.Equal(t, 1, byKey.Searched.Tasks)
	assert.Equal(t, byKey.Data, list("text=10%25").Data)
	assert.Empty(t, list("key=k").Data)
	none := list("text=none")
	assert.Empty(t, none.Data)
	assert.Equal(t, 3, none.Searched.Tasks)
	assert.False(t, none.Searched.From.IsZero())
	assert.False(t, none.Searched.Until.Before(none.Searched.From))
	assert.Zero(t, list("limit=3").Searched, "the page is full")
	for field, value := range map[string][]string{
		"text": {"a%00b", "%ff", strings.Repeat("x", 201)},
		"key":  {"a%00b", "%ff", strings.Repeat("x", 256), ""},
	} {
		for _, v := range value {
			a := b.call("GET", "/v1/tasks?type=pipe&"+field+"="+v, "")
			require.Equal(t, 400, a.status, "%s=%s: %s", field, v, a.body)
			assert.Equal(t, field, a.problem.Errors[0].Field, v)
		}
	}
}

// Numbers and strings in a context come out unchanged.
func TestContextIsNotRead(t *testing.T) {
	b := setup(t)
	b.pipe()
	context := `{"n":12345678901234567890.10,"s":"<&\u00e9>","z":1,"a":{}}`
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":`+context+`}`)).ID
	a := b.call("GET", "/v1/tasks/"+id, "")
	var doc struct{ Context json.RawMessage }
	require.NoError(t, json.Unmarshal(a.body, &doc))
	assert.Equal(t, context, string(doc.Context))
	l, _ := b.lease()
	assert.Equal(t, context, string(l.Context))
}
