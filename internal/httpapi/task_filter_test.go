package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// filtered is a node with some tasks. Each filter in filters finds exactly one of them.
type filtered struct {
	*bundle
	sought  string // by all filters but status
	other   string // by status
	filters map[string]map[string]any
}

// setupFiltered makes four tasks. Their last attempts failed, and they wait for the next one; if
// they are to be final, they failed for good. The fourth one is in another status.
func setupFiltered(t *testing.T, final bool) *filtered {
	b := &filtered{bundle: setup(t)}
	status := "pending"
	if final {
		status = "cancelled"
	}
	read[api.TaskType](b.bundle, 201, b.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"first","retry":{"max_attempts":4,"interval":-3600}},
		  {"name":"second","retry":{"max_attempts":4,"interval":-3600}}]}`))
	read[api.TaskType](b.bundle, 201, b.call("PUT", "/v1/task-types/starter",
		`{"stages":[{"name":"only","spawn":["pipe"]}]}`))
	earlier := b.filed("18", "2021-01-01")
	b.fail(earlier, "worker-2", "timed_out: late", final)
	parent := b.start()
	l, token := b.leaseOf("pipe")
	b.sought = l.ID.String()
	b.created(b.sought, "2022-01-01")
	require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+b.sought+"/complete", "").status)
	b.fail(b.sought, "worker-1", "card_declined: no funds", false)
	require.Equal(t, 200, b.call("PATCH", "/v1/tasks/"+b.sought, `{"delay":"0s"}`).status)
	b.fail(b.sought, "worker-1", "card_declined: no funds", final)
	later := b.filed("19", "2023-01-01")
	b.fail(later, "worker-2", "timed_out: late", final)
	b.other = b.filed("20", "2024-01-01")
	if final {
		require.Equal(t, 200, b.call("POST", "/v1/tasks/"+b.other+"/cancel", "").status)
		for id, hours := range map[string]int{earlier: 6, b.sought: 4, later: 2, b.other: 1} {
			b.ended(id, hours)
		}
	}
	b.filters = map[string]map[string]any{
		"status":      {"status": status},
		"stage":       {"stage": "second"},
		"error":       {"error": "NO FUNDS"},
		"code":        {"code": "card_declined"},
		"fingerprint": {"fingerprint": b.task(b.sought).Fingerprint},
		"attempts":    {"attempts": b.task(b.sought).Attempt},
		"key":         {"key": "order-17"},
		"flow_key":    {"flow_key": "customer-17"},
		"worker":      {"worker": "worker-1"},
		"user":        {"user": "user-17"},
		"tags":        {"tags": "eu,all"},
		"any_tags":    {"any_tags": "eu,none"},
		"metadata":    {"metadata": "order=17"},
		"parent":      {"parent": parent},
		"since, until": {"since": "2021-06-01T00:00:00Z",
			"until": "2022-06-01T00:00:00Z"},
	}
	if final {
		b.filters["ended_since, ended_until"] = map[string]any{"ended_since": b.ago(5),
			"ended_until": b.ago(3)}
	}
	return b
}

// ago returns a time some hours ago.
func (b *filtered) ago(hours int) string {
	return b.store.Clock.Now().Add(time.Duration(-hours) * time.Hour).UTC().Format(time.RFC3339)
}

// filed submits a task with a number in its key, flow key, user and metadata, and sets the time of
// its submit.
func (b *filtered) filed(number, created string) (id string) {
	b.t.Helper()
	id = read[api.SubmittedTask](b.bundle, 201, b.call("POST", "/v1/tasks",
		strings.ReplaceAll(`{"type":"pipe","context":1,"key":"order-N","flow_key":"customer-N",
		"user":"user-N","tags":["us","all"],"metadata":{"order":"N"}}`, "N", number))).ID
	b.created(id, created)
	return id
}

// start submits a task that starts the sought one.
func (b *filtered) start() (id string) {
	b.t.Helper()
	id = read[api.SubmittedTask](b.bundle, 201, b.call("POST", "/v1/tasks",
		`{"type":"starter","context":1}`)).ID
	_, token := b.leaseOf("starter")
	a := b.callAs(token, "POST", "/v1/callbacks/"+id+"/complete", `{"spawn":[{"type":"pipe",
		"context":1,"key":"order-17","flow_key":"customer-17","user":"user-17",
		"tags":["eu","all"],"metadata":{"order":"17"}}]}`)
	require.Equal(b.t, 200, a.status, "%s", a.body)
	b.followUp()
	return id
}

// fail leases the only task that is due, and reports that it failed.
func (b *filtered) fail(id, worker, text string, forGood bool) {
	b.t.Helper()
	l, token := b.leaseOf("pipe")
	require.Equal(b.t, id, l.ID.String())
	a := b.callFrom(worker, token, "/v1/callbacks/"+id+"/fail",
		fmt.Sprintf(`{"error":%q,"retryable":%v}`, text, !forGood))
	require.Equal(b.t, 200, a.status, "%s", a.body)
}

func (b *filtered) created(id, day string) {
	b.t.Helper()
	b.set(`UPDATE tenant_acme.task_1 SET created_at = $3::date `, id, day)
}

func (b *filtered) ended(id string, hours int) {
	b.t.Helper()
	b.set(`UPDATE tenant_acme.journal_1 SET at = now() - make_interval(hours => $3) `, id, hours)
}

func (b *filtered) set(change, id string, to any) {
	b.t.Helper()
	task, err := asyncflow.ParseTaskID(id)
	require.NoError(b.t, err)
	_, err = b.db.Exec(b.t.Context(), change+`WHERE id = $1 AND type =
		(SELECT number FROM tenant_acme.task_types WHERE name = $2)`, task.Number, task.Type, to)
	require.NoError(b.t, err)
}

// wanted returns the task that a filter finds.
func (b *filtered) wanted(name string) string {
	if name == "status" {
		return b.other
	}
	return b.sought
}

// Each filter finds the same task in lists and counts, of its type and of all types, and is the
// filter of each change of many tasks: for live ones here.
func TestEachFilterOfLiveTasks(t *testing.T) {
	b := setupFiltered(t, false)
	for name, filter := range b.filters {
		t.Run(name, func(t *testing.T) {
			b.finds(t, name)
			for call, more := range map[string]string{"cancel": ``, "priority": `"priority":60`,
				"delay": `"delay":"2h"`} {
				b.wouldChange(t, call, filter, more)
			}
			o := b.carryOn(read[api.Operation](b.bundle, 202,
				b.call("POST", "/v1/tasks/delay", bodyOf(filter, `"delay":"2h","type":"pipe"`))))
			assert.Equal(t, []int64{1, 1}, []int64{o.Total, o.Done})
			if name == "status" { // it waits now: another status
				require.Equal(t, 200, b.call("PATCH", "/v1/tasks/"+b.other,
					`{"delay":"0s"}`).status)
			}
		})
	}
	for _, name := range []string{"ended_since", "ended_until"} { // no live task is over
		for call, more := range map[string]string{"cancel": ``, "priority": `,"priority":60`,
			"delay": `,"delay":"2h"`} {
			a := b.call("POST", "/v1/tasks/"+call,
				fmt.Sprintf(`{"type":"pipe",%q:"2026-11-21T10:00:00Z"%s}`, name, more))
			assert.Equal(t, 400, a.status, "%s %s", call, name)
		}
	}
}

// The same is so for tasks that failed for good.
func TestEachFilterOfFinalTasks(t *testing.T) {
	longform.Costly(t)
	b := setupFiltered(t, true)
	tried := []string{"ids", "all_types", "children"} // there are tests of their own for them
	for _, filter := range b.filters {
		tried = slices.AppendSeq(tried, maps.Keys(filter))
	}
	for field := range reflect.TypeFor[api.OperationFilter]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		assert.Contains(t, tried, name, "a new filter is tried, too")
	}
	// These aren't filters, or filters of a list alone.
	tried = append(tried, "type", "text", "order", "reverse", "limit", "cursor", "latest")
	for field := range reflect.TypeFor[api.ListTasksParams]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		assert.Contains(t, tried, name, "a filter of a list is one of each bulk call, too")
	}
	for name, filter := range b.filters {
		t.Run(name, func(t *testing.T) {
			b.finds(t, name)
			for call, more := range map[string]string{"redrive": ``, "erase": ``,
				"rerun": `"status":"failed"`} {
				if name == "status" {
					more = ""
				}
				b.wouldChange(t, call, filter, more)
			}
		})
	}
}

// finds requires that a filter finds its task in lists and counts, and no other.
func (b *filtered) finds(t *testing.T, name string) {
	filter := b.filters[name]
	for _, taskType := range []string{"pipe", ""} {
		query := url.Values{}
		for field, value := range filter {
			query.Set(field, fmt.Sprint(value))
		}
		among := `"all_types":true`
		if taskType != "" {
			query.Set("type", taskType)
			among = `"type":"pipe"`
		}
		var found []string
		a := b.call("GET", "/v1/tasks?"+query.Encode(), "")
		for _, task := range read[api.TaskList](b.bundle, 200, a).Data {
			found = append(found, task.ID)
		}
		assert.Equal(t, []string{b.wanted(name)}, found, taskType)
		a = b.call("GET", "/v1/tasks/count?"+query.Encode(), "")
		assert.Equal(t, api.TaskCount{Count: 1, Exact: true}, read[api.TaskCount](b.bundle, 200, a))
		a = b.call("POST", "/v1/tasks/count", bodyOf(filter, among))
		for o := read[api.Operation](b.bundle, 202, a); ; {
			if o = b.carryOn(o); o.State != "running" {
				assert.EqualValues(t, 1, o.Done, taskType)
				break
			}
		}
	}
}

// wouldChange requires that a change of many tasks with a filter is one of one task, and that its
// operation, which is stopped at once, shows the filter as it was given.
func (b *filtered) wouldChange(t *testing.T, call string, filter map[string]any, more string) {
	for _, among := range []string{`"type":"pipe"`, `"all_types":true`} {
		body := bodyOf(filter, strings.Trim(among+`,"dry_run":true,`+more, ","))
		a := b.call("POST", "/v1/tasks/"+call, body)
		assert.EqualValues(t, 1, read[api.Count](b.bundle, 200, a).Count, "%s %s", call, body)
	}
	b.shows(t, call, filter, more)
	if call != "rerun" { // it leaves them out by itself
		b.shows(t, call, map[string]any{"children": false}, more)
	}
}

// shows requires that the operation of a call shows its filter.
func (b *filtered) shows(t *testing.T, call string, filter map[string]any, more string) {
	a := b.call("POST", "/v1/tasks/"+call,
		bodyOf(filter, strings.Trim(`"type":"pipe",`+more, ",")))
	require.Equal(t, 202, a.status, "%s", a.body)
	var o struct {
		ID, State string
		Filter    map[string]any
	}
	require.NoError(t, json.Unmarshal(a.body, &o))
	for name, value := range filter {
		assert.Equal(t, fmt.Sprint(value), fmt.Sprint(o.Filter[name]), "%s %s", call, name)
	}
	if o.State == "running" { // only one rerun may
		stopped := b.call("POST", "/v1/operations/"+o.ID+"/stop", "")
		require.Equal(t, 200, stopped.status, "%s", stopped.body)
	}
}

// bodyOf returns a filter with further members as the body of a call.
func bodyOf(filter map[string]any, members string) string {
	all := maps.Clone(filter)
	if err := json.Unmarshal([]byte("{"+members+"}"), &all); err != nil {
		panic(err)
	}
	doc, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(doc)
}
