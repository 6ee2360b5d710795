package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// rescue makes the lease of the one running task run out, and rescues the task.
func (b *bundle) rescue() {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(),
		`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	require.NoError(b.t, err)
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(b.t, err)
	n, err := b.store.Rescue(b.t.Context(), pipe)
	require.NoError(b.t, err)
	require.Equal(b.t, 1, n)
}

func (b *bundle) submitOne() (id, path string) {
	b.t.Helper()
	id = read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1}`)).ID
	return id, "/v1/callbacks/" + id
}

func TestHeartbeat(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	l, token := b.lease()
	beat := read[api.HeartbeatResult](b, 200, b.callAs(token, "POST", path+"/heartbeat", ""))
	assert.Equal(t, asyncflow.StatusRunning, beat.Status)
	assert.WithinDuration(t, b.store.Clock.Now().Add(asyncflow.DefaultProcessingTime),
		beat.Deadline, 5*time.Second)
	assert.Greater(t, beat.Deadline, l.Until)
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.Equal(t, beat.Deadline, task.Deadline)

	// While the attempt goes on, its token stays valid after its expiry.
	old := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID, Seq: l.Seq,
		Expiry: time.Now().Add(-time.Hour)})
	assert.Equal(t, 200, b.callAs(old, "POST", path+"/heartbeat", "").status)
	b.rescue()
	a := b.callAs(token, "POST", path+"/heartbeat", "")
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "its lease ran out")
	assert.Equal(t, 401, b.callAs(old, "POST", path+"/heartbeat", "").status, "and no longer")
	assert.Equal(t, 401, b.callAs(old, "POST", path+"/complete", "").status)
}

func TestProgress(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	_, token := b.lease()
	assert.Equal(t, 200, b.callAs(token, "POST", path+"/progress",
		`{"percent":40,"note":"page 12"}`).status)
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.Equal(t, api.Progress{Percent: 40, Note: "page 12"}, task.Progress)
	for body, field := range map[string]string{`{"percent":101}`: "percent",
		`{"note":"x"}`:              "percent",
		`{"percent":1,"done":true}`: "done"} {
		a := b.callAs(token, "POST", path+"/progress", body)
		assert.Equal(t, 400, a.status, body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
	}
	assert.Equal(t, 200, b.callAs(token, "POST", path+"/complete", "").status)
	assert.Equal(t, 409, b.callAs(token, "POST", path+"/progress", `{"percent":50}`).status)
	task = read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.Zero(t, task.Progress, "the next attempt has its own")
}

// A heartbeat and a progress report leave a checkpoint, which the next attempt gets.
func TestCheckpointReport(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	_, token := b.lease()
	large := `{"checkpoint":"` + strings.Repeat("x", 1000) + `"}`
	for body, status := range map[string]int{
		`{"checkpoint":{"page":1}}`:       200,
		`{"checkpoint":null}`:             200,
		`{}`:                              200,
		`{"checkpoints":1}`:               400,
		`{"checkpoint":`:                  400,
		`{"checkpoint":1}1`:               400,
		`{"checkpoint":1,"checkpoint":2}`: 400,
		"{\"checkpoint\":\"\xff\"}":       400,
		`{"checkpoint":` + strings.Repeat("[", 129) + strings.Repeat("]", 129) + `}`: 400,
		`[]`:  400,
		large: 413,
	} {
		a := b.callAs(token, "POST", path+"/heartbeat", body)
		require.Equal(t, status, a.status, body[:min(len(body), 40)])
		if status == 413 {
			require.Contains(t, a.problem.Detail, "checkpoint is 1002 bytes; the limit is 1000")
		}
	}
	again := func() string {
		t.Helper()
		require.Equal(t, 200, b.callAs(token, "POST", path+"/snooze", `{"retry_after":"1s"}`).status)
		require.Equal(t, 200, b.call("PATCH", "/v1/tasks/"+id, `{"delay":"0s"}`).status)
		var l asyncflow.Lease
		l, token = b.lease()
		return string(l.Checkpoint)
	}
	require.Equal(t, `{"page":1}`, again())
	a := b.callAs(token, "POST", path+"/progress", `{"percent":3,"checkpoint":"a","page":1}`)
	require.Equal(t, 400, a.status)
	require.Equal(t, 413, b.callAs(token, "POST", path+"/progress",
		`{"percent":3,`+large[1:]).status)
	require.Equal(t, 200, b.callAs(token, "POST", path+"/progress",
		`{"percent":3,"checkpoint": [ 2 ]}`).status)
	require.Equal(t, `[ 2 ]`, again())
	got := read[api.TaskCheckpoint](b, 200, b.call("GET", "/v1/tasks/"+id+"/checkpoint", ""))
	require.Equal(t, []string{"first", `[2]`}, []string{got.Stage, string(got.Document)})
	require.WithinDuration(t, time.Now(), got.WrittenAt, time.Hour)
	other, _ := b.submitOne()
	a = b.call("GET", "/v1/tasks/"+other+"/checkpoint", "")
	require.Equal(t, 404, a.status)
	require.Contains(t, a.problem.Detail, "no attempt of task "+other)
	require.Equal(t, 404, b.call("GET", "/v1/tasks/pipe.1.999999/checkpoint", "").status)
	require.Equal(t, 200, b.callAs(token, "POST", path+"/fail",
		`{"error":"no","retryable":false}`).status)
	require.Equal(t, 409, b.callAs(token, "POST", path+"/heartbeat", `{"checkpoint":3}`).status)
}

// There is a rate for checkpoints of a tenant. Beyond it, reports without one are taken as before.
func TestCheckpointsHaveARate(t *testing.T) {
	b := setup(t)
	b.pipe()
	_, path := b.submitOne()
	_, token := b.lease()
	checked := map[string]string{"heartbeat": `{"checkpoint":1}`,
		"progress": `{"percent":1,"checkpoint":1}`}
	b.server.ChargeCheckpoints("other")
	for verb, body := range checked {
		require.Equal(t, 200, b.callAs(token, "POST", path+"/"+verb, body).status)
	}
	b.server.ChargeCheckpoints("acme")
	for verb, body := range checked {
		a := b.callAs(token, "POST", path+"/"+verb, body)
		require.Equal(t, 429, a.status, verb)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Contains(t, a.problem.Detail, "checkpoints per second")
	}
	require.Equal(t, 200, b.callAs(token, "POST", path+"/heartbeat", "").status)
	require.Equal(t, 200, b.callAs(token, "POST", path+"/progress", `{"percent":2}`).status)
	require.Equal(t, 200, b.callAs(token, "POST", path+"/complete", "").status)
	a := b.callAs(token, "POST", path+"/heartbeat", checked["heartbeat"])
	require.Equal(t, 409, a.status, "an attempt that is over takes nothing of the rate")
}

// A report counts even if its text is garbled.
func TestGarbledReports(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	_, token := b.lease()
	for body, status := range map[string]int{
		"{\"percent\":0,\"note\":\"a\xff\\u0000b\"}":              200,
		"{\"percent\":3,\"checkpoint\":\"a\xff\"}":                400,
		`{"percent":3,"note":"` + strings.Repeat("ä", 500) + `"}`: 200,
		`{"percent":3,"note":"` + strings.Repeat("x", 501) + `"}`: 400,
		`{"checkpoint":{"percent":1}}`:                            400,
	} {
		a := b.callAs(token, "POST", path+"/progress", body)
		require.Equal(t, status, a.status, "%.60q: %s", body, a.body)
	}
	a := b.callAs(token, "POST", path+"/snooze",
		"{\"retry_after\":\"1h\",\"error\":\"not\xff yet\"}")
	require.Equal(t, 200, a.status, "%s", a.body)
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	require.Equal(t, asyncflow.WaitSnooze, asyncflow.WaitReason(task.WaitsFor))
}

// A vote leaves no checkpoint, as another claimer gets it next, and can't be put off.
func TestWhatAVoteHasNot(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/judge", `{"stages":[{"name":"look","mode":"claim",
		"quorum":{"votes":1,"max_votes":1}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	b.submitJudge(1)
	b.fanOut("judge")
	anna := b.claim("anna", `,"wait":"1m"`)[0]
	for verb, body := range map[string]string{
		"heartbeat": `{"checkpoint":1}`,
		"progress":  `{"percent":1,"checkpoint":1}`,
	} {
		a := b.report(anna, verb, body)
		require.Equal(t, 400, a.status, verb)
		require.Equal(t, "checkpoint", a.problem.Errors[0].Field)
	}
	snoozed := b.report(anna, "snooze", `{"retry_after":"1h"}`)
	require.Equal(t, 400, snoozed.status)
	require.Contains(t, snoozed.problem.Detail, "release")
}

// A result that comes after its lease was lost counts if the task was not started again, whether
// the task is in ready or in wait.
func TestLateResult(t *testing.T) {
	t.Parallel()
	for name, interval := range map[string]string{"in ready": "-1", "in wait": "-600"} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.call("PUT", "/v1/task-types/pipe",
				`{"stages":[{"name":"first","retry":{"interval":`+interval+`}},{"name":"second"}]}`)
			id, path := b.submitOne()
			l, token := b.lease()
			b.rescue()
			assert.Equal(t, 409, b.callAs(token, "POST", path+"/fail", `{"error":"no"}`).status,
				"a failure changes nothing: it is tried again anyway")
			for range 2 { // the same report again is well
				a := b.callAs(token, "POST", path+"/complete", `{"output":"late"}`)
				assert.Equal(t, asyncflow.StatusPending, read[api.CallbackResult](b, 200, a).Status)
			}
			a := b.callAs(token, "POST", path+"/complete", `{"output":"later"}`)
			assert.Equal(t, 409, a.status)
			assert.Contains(t, a.problem.Detail, `ended as "done" with another output`)
			a = b.callAs(token, "POST", path+"/fail", `{"error":"no","retryable":false}`)
			assert.Equal(t, 409, a.status)
			assert.Contains(t, a.problem.Detail, `ended as "done"`)
			next, _ := b.lease()
			assert.Equal(t, []any{"second", `"late"`, l.Seq + 2},
				[]any{next.Stage, string(next.Context), next.Seq})
			attempts := read[api.AttemptList](b, 200,
				b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
			require.Len(t, attempts, 2)
			assert.Equal(t, []any{api.AttemptOutcome("lost"), 1, api.AttemptOutcome("done"), 1},
				[]any{attempts[0].Outcome, attempts[0].Attempt, attempts[1].Outcome,
					attempts[1].Attempt})
		})
	}
}

// A late result doesn't count if the task was started again.
func TestTooLateResult(t *testing.T) {
	b := setup(t)
	b.pipe()
	_, path := b.submitOne()
	_, first := b.lease()
	b.rescue()
	_, second := b.lease()
	assert.Equal(t, 409, b.callAs(first, "POST", path+"/complete", "").status)
	assert.Equal(t, 200, b.callAs(second, "POST", path+"/complete", "").status)
	assert.Equal(t, 409, b.callAs(first, "POST", path+"/complete", "").status,
		"the second attempt's outcome is not the first one's")
}

// A late result doesn't count if the lost attempt was the last: final states never change.
func TestLateResultOfTheLastAttempt(t *testing.T) {
	b := setup(t)
	b.call("PUT", "/v1/task-types/pipe", `{"stages":[{"name":"only","retry":{"max_attempts":1}}]}`)
	id, path := b.submitOne()
	_, token := b.lease()
	b.rescue()
	a := b.callAs(token, "POST", path+"/complete", "")
	assert.Equal(t, 409, a.status)
	assert.Contains(t, a.problem.Detail, "the task is failed")
	assert.Equal(t, asyncflow.StatusFailed,
		read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Status)
}

// If a stage allows less time for processing than for its delivery, a heartbeat's deadline is the
// end of the delivery while that is open, and max_processing_time from now after a 202, whether the
// 202 is written or not.
func TestHeartbeatOfAShortStage(t *testing.T) {
	b := setup(t)
	b.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"only","timeout":"10m","max_processing_time":"1m"}]}`)
	id, path := b.submitOne()
	l, token := b.lease()
	deadline := func() time.Time {
		t.Helper()
		beat := read[api.HeartbeatResult](b, 200, b.callAs(token, "POST", path+"/heartbeat", ""))
		task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
		assert.Equal(t, task.Deadline, beat.Deadline)
		return beat.Deadline
	}
	open := deadline()
	assert.WithinDuration(t, l.Until, open, time.Millisecond)
	written := make(chan error, 1)
	b.committer.Accept("acme", l, b.store.Clock.Now().Add(time.Minute), store.Seen{},
		func(err error) { written <- err })
	require.NoError(t, <-written)
	assert.Equal(t, open, read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Deadline,
		"the deadline that the worker was told applies")
	assert.Less(t, deadline(), l.Until.Add(-5*time.Minute))
}
