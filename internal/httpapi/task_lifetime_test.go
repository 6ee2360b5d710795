package httpapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// endNow moves the end_by of the one task to now.
func (b *bundle) endNow() {
	b.t.Helper()
	at := b.store.Clock.Now().Add(-time.Second)
	_, err := b.db.Exec(b.t.Context(), `UPDATE tenant_acme.lifetimes SET expires_at = $1`, at)
	require.NoError(b.t, err)
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(b.t, err)
	_, err = b.db.Exec(b.t.Context(), pipe.SQL(pipe.End, `UPDATE {task} SET options = jsonb_set(
		options::jsonb, '{lifetime,end_by}', to_jsonb($1::text))::json`),
		at.UTC().Format(time.RFC3339Nano))
	require.NoError(b.t, err)
}

// A worker hears by its heartbeat and its report that the lifetime of its task is over, whether the
// job ended the task already or not.
func TestReportAfterLifetime(t *testing.T) {
	reports := map[string]string{"/fail": `{"error":"x"}`, "/snooze": `{"retry_after":"1m"}`,
		"/progress": `{"percent":50}`}
	for name, first := range map[string]struct {
		first string // report
		swept bool
	}{
		"complete": {"/complete", false}, "fail": {"/fail", false}, "snooze": {"/snooze", false},
		"after the job": {"/progress", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.pipe()
			id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
				`{"type":"pipe","context":1,"end_by":"1h"}`)).ID
			path := "/v1/callbacks/" + id
			_, token := b.lease()
			beat := read[api.HeartbeatResult](b, 200,
				b.callAs(token, "POST", path+"/heartbeat", ""))
			task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
			assert.WithinDuration(t, b.store.Clock.Now().Add(time.Hour), task.Lifetime.EndBy,
				time.Minute)
			assert.False(t, beat.Deadline.After(task.Lifetime.EndBy))
			b.endNow()
			if first.swept {
				pipe, err := b.store.Catalog.Type("acme", "pipe")
				require.NoError(t, err)
				n, err := b.store.ExpireTasks(t.Context(), pipe)
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			for _, call := range []string{"/heartbeat", first.first, "/complete", "/fail",
				"/snooze", "/progress"} {
				a := b.callAs(token, "POST", path+call, reports[call])
				assert.Equal(t, []any{409, "expired"}, []any{a.status, a.problem.Code}, call)
			}
			task = read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
			assert.Equal(t, []any{asyncflow.StatusFailed, "expired"},
				[]any{task.Status, task.ErrorCode})
			a := b.call("POST", "/v1/tasks/"+id+"/redrive", `{"end_by":"2000-01-01T00:00:00Z"}`)
			assert.Equal(t, 409, a.status)
			task = read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+id+"/redrive",
				`{"end_by":"2h"}`))
			assert.Equal(t, asyncflow.StatusPending, task.Status)
			task = read[api.Task](b, 200, b.call("PATCH", "/v1/tasks/"+id,
				`{"end_by":"none","start_by":"3h"}`))
			assert.True(t, task.Lifetime.EndBy.IsZero())
			assert.WithinDuration(t, b.store.Clock.Now().Add(3*time.Hour), task.Lifetime.StartBy,
				time.Minute)
		})
	}
}

// Deadlines that can't be are refused with the field and the limit.
func TestBadLifetimes(t *testing.T) {
	b := setup(t)
	b.pipe()
	for body, field := range map[string]string{
		`"start_by":"0s"`:                                "start_by",
		`"start_by":"soon"`:                              "start_by",
		`"end_by":"87601h"`:                              "end_by",
		`"end_by":"-1h"`:                                 "end_by",
		`"end_by":"3000-01-01T00:00:00Z"`:                "end_by",
		`"run_at":"2090-01-02T00:00:00Z"`:                "run_at",
		`"delay":"1h","start_by":"2020-01-01T00:00:00Z"`: "start_by",
	} {
		a := b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,`+body+`}`)
		assert.Equal(t, 400, a.status, body)
		require.NotEmpty(t, a.problem.Errors, body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
	}
}

// A type's lifetime is read back as it was put.
func TestLifetimeOfType(t *testing.T) {
	b := setup(t)
	put := `{"stages":[{"name":"one","start_by":"10m"}],"start_by":"1h30m",` +
		`"end_by":"2090-01-01T00:00:00Z"}`
	made := read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/timed", put))
	got := read[api.TaskType](b, 200, b.call("GET", "/v1/task-types/timed", ""))
	for _, one := range []api.TaskType{made, got} {
		assert.Equal(t, []string{"1h30m", "2090-01-01T00:00:00Z", "10m"}, []string{
			one.StartBy.Text(), one.EndBy.Text(), one.Stages[0].StartBy.Text()})
	}
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"timed","context":1,"end_by":"none"}`)).ID
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.True(t, task.Lifetime.EndBy.IsZero())
	assert.WithinDuration(t, b.store.Clock.Now().Add(90*time.Minute), task.Lifetime.StartBy,
		time.Minute)
}

// A task can't be put off beyond a time that stays, unless it gets another one.
func TestRunAtAfterLifetime(t *testing.T) {
	b := setup(t)
	b.pipe()
	at := b.store.Clock.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, field := range []string{"start_by", "end_by"} {
		id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
			`{"type":"pipe","context":1,"`+field+`":"`+at+`"}`)).ID
		a := b.call("PATCH", "/v1/tasks/"+id, `{"delay":"2h"}`)
		require.Equal(t, 400, a.status, field)
		require.NotEmpty(t, a.problem.Errors, field)
		assert.Equal(t, "run_at", a.problem.Errors[0].Field, field)
		read[api.Task](b, 200, b.call("PATCH", "/v1/tasks/"+id, `{"delay":"30m"}`))
		read[api.Task](b, 200, b.call("PATCH", "/v1/tasks/"+id, `{"delay":"2h","`+field+
			`":"3h"}`))
	}
}

// A stage of mode wait makes no attempt, so that none can begin in time.
func TestNoStartByOfAWait(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/waits", `{"stages":[{"name":"one"},{"name":"two",
		"mode":"wait","wait":{"signal":"go","timeout":"1h"},"start_by":"1m"}]}`)
	require.Equal(t, 400, a.status)
	require.NotEmpty(t, a.problem.Errors)
	assert.Equal(t, "stages[1].start_by", a.problem.Errors[0].Field)
}

// A task that runs again gets the lifetime of its own that it is given, not that of the old one. So
// do the tasks of operations.
func TestLifetimeOfRerun(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := b.failSecond()
	made := read[api.SubmittedTask](b, 201, b.rerun(id, "", `{"start_by":"1h","end_by":"2h"}`)).ID
	now := b.store.Clock.Now()
	inTime := func(task api.Task) {
		t.Helper()
		assert.WithinDuration(t, now.Add(time.Hour), task.Lifetime.StartBy, time.Minute)
		assert.WithinDuration(t, now.Add(2*time.Hour), task.Lifetime.EndBy, time.Minute)
	}
	inTime(read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+made, "")))
	body := `{"type":"pipe","status":"failed","start_by":"1h","end_by":"2h"}`
	for _, path := range []string{"/v1/tasks/rerun", "/v1/tasks/redrive"} {
		o := b.carryOn(read[api.Operation](b, 202, b.call("POST", path, body)))
		require.EqualValues(t, 1, o.Done, path)
	}
	inTime(read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")))
	for _, task := range read[api.TaskList](b, 200,
		b.call("GET", "/v1/tasks?type=pipe&status=pending", "")).Data {
		inTime(read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+task.ID, "")))
	}
	for _, path := range []string{"/v1/tasks/rerun", "/v1/tasks/redrive"} {
		a := b.call("POST", path, `{"type":"pipe","status":"failed","end_by":"87601h"}`)
		require.Equal(t, 400, a.status, path)
		assert.Equal(t, "end_by", a.problem.Errors[0].Field, path)
	}
	a := b.rerun(id, "", `{"delay":"1h","end_by":"2020-01-01T00:00:00Z"}`)
	assert.Equal(t, 409, a.status, "it is live again: %s", a.body)
}

// The stats of a type say how many of its failed tasks expired.
func TestExpiredInStats(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.failSecond()
	stats := func() api.Stats {
		t.Helper()
		return read[api.StatsList](b, 200, b.call("GET", "/v1/stats?type=pipe", "")).Data[0]
	}
	assert.NotContains(t, string(b.call("GET", "/v1/stats?type=pipe", "").body), "expired")
	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"end_by":"2020-01-01T00:00:00Z"}`))
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	n, err := b.store.ExpireTasks(t.Context(), pipe)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	s := stats()
	assert.Equal(t, []int64{1, 2}, []int64{s.Expired, s.Failed})
}

// A change to another lifetime waits for nodes that know it, as a submit with one does. Other
// changes don't.
func TestPatchLifetimeBesideAnOlderNode(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1}`)).ID
	_, err := b.db.Exec(t.Context(), `INSERT INTO asyncflow.nodes
		(id, roles, version, started_at, seen_at, knows)
		VALUES ('old', 'api', '0.0.9', now(), now() + interval '1 h', '{deliver}')`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.store.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	unknown := func() bool { return b.store.CheckKnownLately(asyncflow.CapLifetimes) != nil }
	require.Eventually(t, unknown, 2*time.Minute, 20*time.Millisecond, "the node hears of it")
	for _, body := range []string{`{"start_by":"1h"}`, `{"end_by":"none"}`} {
		a := b.call("PATCH", "/v1/tasks/"+id, body)
		require.Equal(t, []any{409, "conflict"}, []any{a.status, a.problem.Code}, body)
		require.Contains(t, a.problem.Detail, "it uses lifetimes, which a running node")
	}
	read[api.Task](b, 200, b.call("PATCH", "/v1/tasks/"+id, `{"delay":"1h"}`))
	require.Error(t, b.store.CheckKnownLately(asyncflow.CapStartedLifetimes))
	for _, path := range []string{"/v1/tasks/rerun", "/v1/tasks/redrive"} {
		a := b.call("POST", path, `{"type":"pipe","status":"failed","end_by":"1h"}`)
		require.Equal(t, []any{409, "conflict"}, []any{a.status, a.problem.Code}, path)
	}
}
