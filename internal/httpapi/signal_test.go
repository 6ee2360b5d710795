package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// approvalSpec is a type in which the second stage waits for a signal.
const approvalSpec = `{"stages":[{"name":"ask"},{"name":"wait","mode":"wait",` +
	`"wait":{"signal":"approved","timeout":"72h","on_timeout":{"next":"escalate"}}},` +
	`{"name":"ship","next":["finish"]},{"name":"escalate"}]}`

// signal sends a signal with an idempotency key, "" for none, and returns the answer.
func (b *bundle) signal(key, body string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST", b.url+"/v1/signals",
		strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+b.token)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return b.do(req)
}

func TestSendSignal(t *testing.T) {
	b := setup(t)
	stored := read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/pipe", approvalSpec))
	require.Equal(t, asyncflow.Stage{Name: "wait", Mode: asyncflow.ModeWait,
		Wait: &asyncflow.Wait{Signal: "approved", Timeout: asyncflow.NewDuration(72 * time.Hour),
			OnTimeout: &asyncflow.StageFailure{Next: "escalate"}}}, stored.Stages[1])
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"k"}`)).ID
	sent := read[api.SentSignal](b, 202, b.signal("", `{"name":"approved","task":"`+id+`"}`))
	require.Equal(t, []string{"approved", "pipe", id}, []string{sent.Name, sent.Type, sent.Task})
	require.WithinDuration(t, b.store.Clock.Now().Add(24*time.Hour), sent.KeptUntil, time.Minute)
	require.Equal(t, id, read[api.SentSignal](b, 202,
		b.signal("", `{"name":"approved","type":"pipe","key":"k"}`)).Task)
	sent = read[api.SentSignal](b, 202,
		b.signal("one", `{"name":"approved","type":"pipe","key":"later","keep":"720h","data":{"a": 1}}`))
	require.Empty(t, sent.Task)
	require.WithinDuration(t, b.store.Clock.Now().Add(720*time.Hour), sent.KeptUntil, time.Minute)
	again := read[api.SentSignal](b, 202,
		b.signal("one", `{"name":"approved","type":"pipe","key":"later","keep":"720h","data":{"a": 1}}`))
	require.True(t, again.Existing)
	require.Equal(t, sent.KeptUntil, again.KeptUntil)

	read[api.Task](b, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", ""))
	long := `"` + strings.Repeat("x", 300_000) + `"`
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"name":"approved","task":"` + id + `"}`:                          {409, `"code":"task_over"`},
		`{"name":"approved","type":"pipe","key":"k"}`:                      {409, id + " is over"},
		`{"name":"approved","task":"pipe.1.999"}`:                          {404, "there is no task pipe.1.999"},
		`{"name":"approved","task":"none.1.1"}`:                            {404, "there is no task none.1.1"},
		`{"name":"approved","type":"none","key":"k"}`:                      {404, "there is no task type none"},
		`{"name":"refused","type":"pipe","key":"k2"}`:                      {400, "the stages of pipe wait for approved"},
		`{"name":"Approved","type":"pipe","key":"k2"}`:                     {400, "name"},
		`{"name":"approved"}`:                                              {400, "task is required, or type and key"},
		`{"name":"approved","key":"k2"}`:                                   {400, "type is required with key"},
		`{"name":"approved","type":"pipe","key":"k","task":"pipe.1.1"}`:    {400, "task and key exclude each other"},
		`{"name":"approved","type":"ship","task":"pipe.1.1"}`:              {400, "type differs"},
		`{"name":"approved","task":"17"}`:                                  {400, "must look like"},
		`{"name":"approved","type":"pipe","key":"k2","keep":"721h"}`:       {400, "keep is 721h"},
		`{"name":"approved","type":"pipe","key":"k2","data":` + long + `}`: {413, "data"},
	} {
		a := b.signal("", body)
		require.Equal(t, want.status, a.status, "%.200s: %s", body, a.body)
		require.Contains(t, string(a.body), want.text, "%.200s", body)
	}
	a := b.signal("\xff", `{"name":"approved","type":"pipe","key":"k2"}`)
	require.Equal(t, 400, a.status, string(a.body))
	a = b.signal("one", `{"name":"approved","type":"pipe","key":"later","data":2}`)
	require.Equal(t, []any{422, "key_reused"}, []any{a.status, a.problem.Code})
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/plain", `{"stages":[{"name":"one"}]}`))
	a = b.signal("", `{"name":"approved","type":"plain","key":"k"}`)
	require.Equal(t, 400, a.status)
	require.Contains(t, string(a.body), "type is plain, in which no stage waits for a signal")
}

// What makes no sense in a stage that waits is refused, by its name.
func TestStagesThatWaitAreChecked(t *testing.T) {
	b := setup(t)
	put := func(stage string) answer {
		return b.call("PUT", "/v1/task-types/pipe", `{"stages":[{"name":"wait","mode":"wait",`+stage+
			`},{"name":"next"}]}`)
	}
	const wait = `"wait":{"signal":"go","timeout":"1h"}`
	for _, field := range []string{`"timeout":"1s"`, `"max_processing_time":"1s"`,
		`"retry":{"max_attempts":2}`, `"max_snooze":"1h"`, `"priority":1`, `"deliver":{"input":true}`,
		`"on_failure":{"next":"next"}`, `"fan_out":{"shards":2}`, `"quorum":{"votes":1,"max_votes":1}`,
		`"window":{"tasks":1,"per":"1h"}`, `"identity":"unchecked"`} {
		a := put(wait + "," + field)
		require.Equal(t, 400, a.status, field)
		name, _, _ := strings.Cut(strings.TrimPrefix(field, `"`), `"`)
		require.Equal(t, "stages[0]."+name, a.problem.Errors[0].Field)
		require.Contains(t, a.problem.Errors[0].Message, "can't be combined with the mode wait")
	}
	for stage, field := range map[string]string{
		`"timeout":"1s"`: "stages[0].wait",
		`"wait":{"signal":"go","timeout":"8761h"}`:                           "stages[0].wait.timeout",
		`"wait":{"signal":"go","timeout":"1h","on_timeout":{"next":"none"}}`: "stages[0].wait.on_timeout.next",
		`"wait":{"signal":"go","timeout":"1h","on_timeout":{"next":"wait"}}`: "stages[0].wait.on_timeout.next",
		wait + `,"next":["next","finish"]`:                                   "stages[0].next",
	} {
		a := put(stage)
		require.Equal(t, 400, a.status, "%s: %s", stage, a.body)
		require.Equal(t, field, a.problem.Errors[0].Field, stage)
	}
	a := b.call("PUT", "/v1/task-types/pipe", `{"stages":[{"name":"one",`+wait+`}]}`)
	require.Equal(t, "stages[0].wait", a.problem.Errors[0].Field)
	a = b.call("PUT", "/v1/task-types/pipe",
		`{"flow":{"ordered":true},"stages":[{"name":"one","mode":"wait",`+wait+`}]}`)
	require.Contains(t, string(a.body), "with flow.ordered the first stage can't wait")
	read[api.TaskType](b, 201, put(wait))
	a = b.call("POST", "/v1/endpoints", `{"type":"pipe","stage":"wait","url":"https://w.example.com/"}`)
	require.Equal(t, 400, a.status)
	require.Contains(t, string(a.body), "whose mode is wait")
}

// A signal counts as a submit.
func TestSignalsAreLimited(t *testing.T) {
	b := setup(t)
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/pipe", approvalSpec))
	b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme", `{"quotas":{"submits_per_second":1}}`)
	require.Eventually(t, func() bool {
		a := b.signal("", `{"name":"approved","type":"pipe","key":"k"}`)
		return a.status == 429 && a.header.Get("RateLimit") != ""
	}, patience, time.Millisecond)
	require.Equal(t, 403, b.callAs(b.newToken("acme"), "POST", "/v1/signals", `{}`).status)
}
