package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// claimed creates a task type with one claimed stage.
func (b *bundle) claimed() {
	b.t.Helper()
	a := b.call("PUT", "/v1/task-types/judge", `{"stages":[{"name":"look","mode":"claim",
		"retry":{"max_attempts":2,"interval":-1}}]}`)
	require.Equal(b.t, 201, a.status, "%s", a.body)
}

func (b *bundle) submitJudge(n int) (ids []string) {
	b.t.Helper()
	for i := range n {
		ids = append(ids, read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
			fmt.Sprintf(`{"type":"judge","context":{"n":%d}}`, i))).ID)
	}
	return ids
}

// claim asks for tasks. more are further fields of the call.
func (b *bundle) claim(claimer, more string) []api.Delivery {
	b.t.Helper()
	return read[api.ClaimList](b, 200, b.claimCall(claimer, more)).Claims
}

// claimFrom is claim for another stage.
func (b *bundle) claimFrom(stage, claimer, more string) []api.Delivery {
	b.t.Helper()
	return read[api.ClaimList](b, 200, b.claimCallFrom(stage, claimer, more)).Claims
}

func (b *bundle) claimCall(claimer, more string) answer {
	b.t.Helper()
	return b.claimCallFrom("look", claimer, more)
}

func (b *bundle) claimCallFrom(stage, claimer, more string) answer {
	b.t.Helper()
	token, err := b.issuer.Issue("acme", claimer, []auth.Scope{auth.ScopeWork}, time.Hour,
		time.Now())
	require.NoError(b.t, err)
	return b.callAs(token, "POST", "/v1/claims",
		`{"type":"judge","stage":"`+stage+`","claimer":"`+claimer+`"`+more+`}`)
}

// report makes a call of a worker about a delivery.
func (b *bundle) report(d api.Delivery, verb, body string) answer {
	b.t.Helper()
	path := "/v1/callbacks/" + d.TaskID + "/" + verb
	if verb == "release" || verb == "answer" {
		path = "/v1/claims/" + d.TaskID + "/" + verb
	}
	return b.callAs(d.Callback.Token, "POST", path, body)
}

func (b *bundle) task(id string) api.Task {
	b.t.Helper()
	return read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
}

// A claim is pushed's twin: the same delivery, and the same reports.
func TestClaim(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(3)
	waiting := b.task(ids[0])
	assert.Equal(t, []any{asyncflow.StatusWaiting, api.TaskWaitsForClaimer},
		[]any{waiting.Status, waiting.WaitsFor})

	all := b.claim("anna", `,"max":2`)
	require.Len(t, all, 2)
	first := all[0]
	assert.Equal(t, []any{ids[0], "judge", "look", 1, 2, 1, `{"n":0}`},
		[]any{first.TaskID, first.Type, first.Stage, first.Attempt, first.MaxAttempts, first.Seq,
			string(first.Context)})
	assert.WithinDuration(t, b.store.Clock.Now().Add(asyncflow.FirstClaim), first.Deadline,
		patience)
	assert.True(t, strings.HasSuffix(first.Callback.URL, "/v1/callbacks/"+ids[0]),
		first.Callback.URL)
	assert.Equal(t, asyncflow.StatusRunning, b.task(ids[0]).Status)

	require.Equal(t, 200, b.report(first, "complete", `{"output":"a cat"}`).status)
	require.Equal(t, 200, b.report(first, "complete", `{"output":"a cat"}`).status, "again")
	require.Equal(t, 409, b.report(first, "complete", `{"output":"a dog"}`).status)
	done := b.task(ids[0])
	assert.Equal(t, []any{asyncflow.StatusSucceeded, `"a cat"`},
		[]any{done.Status, string(done.Result)})
	attempts := read[api.AttemptList](b, 200,
		b.call("GET", "/v1/tasks/"+ids[0]+"/attempts", "")).Data
	require.Len(t, attempts, 1)
	assert.Equal(t, []any{"anna", ""}, []any{attempts[0].Claimer, attempts[0].Endpoint})

	require.Equal(t, 200, b.report(all[1], "fail", `{"error":"too dark"}`).status)
	again := b.claim("bob", `,"max":10,"wait":"10s"`)
	require.NotEmpty(t, again)
	assert.Equal(t, ids[2], again[0].TaskID, "a retry goes behind")
	if len(again) == 1 { // the retry is due a second later
		again = append(again, b.claim("carol", `,"max":10,"wait":"10s"`)...)
	}
	require.Len(t, again, 2)
	assert.Equal(t, []any{ids[1], 2, 2}, []any{again[1].TaskID, again[1].Attempt, again[1].Seq})
	require.Equal(t, 200, b.report(again[1], "fail", `{"error":"too dark"}`).status)
	assert.Equal(t, asyncflow.StatusFailed, b.task(ids[1]).Status)
	assert.Empty(t, b.claim("dora", `,"max":10`))
}

// A claimer that asks again gets its own open claims first, under the same seq.
func TestClaimAgain(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(4)
	first := b.claim("anna", `,"max":2`)
	require.Len(t, first, 2)
	again := b.claim("anna", `,"max":3`)
	require.Len(t, again, 2, "no others before those are settled")
	for i := range again {
		assert.Equal(t, []any{first[i].TaskID, first[i].Seq}, []any{again[i].TaskID, again[i].Seq})
	}
	part := b.claim("anna", `,"max":3,"held":["`+ids[0]+`"]`)
	require.Len(t, part, 1)
	assert.Equal(t, ids[1], part[0].TaskID, "the one that it doesn't hold")
	more := b.claim("anna", `,"max":3,"held":["`+ids[0]+`","`+ids[1]+`"]`)
	require.Len(t, more, 2)
	assert.Equal(t, []string{ids[2], ids[3]}, []string{more[0].TaskID, more[1].TaskID})
	assert.Empty(t, b.claim("bob", `,"max":3`), "each is with one claimer")
	require.Equal(t, 200, b.report(first[0], "complete", ``).status,
		"the first token is valid, too")
	require.Equal(t, 200, b.report(part[0], "complete", ``).status)
}

// A claim that is given back costs no attempt, and its token is of no more use.
func TestReleaseClaim(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(1)
	first := b.claim("anna", ``)[0]
	for range 2 {
		require.Equal(t, 200, b.report(first, "release", ``).status)
	}
	assert.Equal(t, asyncflow.StatusWaiting, b.task(ids[0]).Status)
	second := b.claim("bob", ``)[0]
	assert.Equal(t, []any{ids[0], 1, 2}, []any{second.TaskID, second.Attempt, second.Seq})
	require.Equal(t, 200, b.report(first, "release", ``).status, "replayed: nothing happens")
	assert.Equal(t, asyncflow.StatusRunning, b.task(ids[0]).Status)
	assert.Equal(t, 409, b.report(first, "complete", ``).status)
	assert.Equal(t, 409, b.report(first, "heartbeat", ``).status)
	assert.Equal(t, 401, b.callAs(second.Callback.Token, "POST", "/v1/claims/judge.1.99/release",
		"").status)
	assert.Equal(t, 401, b.call("POST", "/v1/claims/"+ids[0]+"/release", "").status)
	require.Equal(t, 200, b.report(second, "complete", ``).status)
	assert.Equal(t, 409, b.report(second, "release", ``).status)

	b.pipe()
	b.submitOne()
	l, token := b.lease()
	a := b.callAs(token, "POST", "/v1/claims/"+l.ID.String()+"/release", "")
	assert.Equal(t, 409, a.status, "it was pushed: %s", a.body)
}

// A claim without a sign of life counts no attempt. A heartbeat or progress prolongs it.
func TestFirstClaim(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(3)
	all := b.claim("anna", `,"max":3`)
	require.Len(t, all, 3)
	require.Equal(t, 200, b.report(all[1], "heartbeat", ``).status)
	require.Equal(t, 200, b.report(all[2], "progress", `{"percent":1}`).status)
	for _, i := range []int{1, 2} {
		assert.Greater(t, b.task(ids[i]).Deadline.Sub(all[i].Deadline), 30*time.Minute)
	}
	b.exec(`UPDATE tenant_acme.lease
		SET leased_at = leased_at - interval '2 hours', until = until - interval '2 hours'`)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)
	n, err := b.store.Rescue(t.Context(), judge)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	for i, outcome := range []api.AttemptOutcome{"released", "lost", "lost"} {
		rows := read[api.AttemptList](b, 200,
			b.call("GET", "/v1/tasks/"+ids[i]+"/attempts", "")).Data
		require.Len(t, rows, 1)
		assert.Equal(t, []any{outcome, "anna"}, []any{rows[0].Outcome, rows[0].Claimer})
	}
	again := b.claim("anna", ``)
	require.Len(t, again, 1)
	assert.Equal(t, []any{ids[0], 1, 2}, []any{again[0].TaskID, again[0].Attempt, again[0].Seq})
	assert.Equal(t, 409, b.report(all[0], "progress", `{"percent":1}`).status)
}

// A task that was given back very often fails, before the number of its next row would be the last.
func TestClaimsGivenBackForEver(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(2)
	_, err := b.db.Exec(t.Context(), `UPDATE tenant_acme.wait SET seq = $1`, asyncflow.MaxJournal-1)
	require.NoError(t, err)
	for _, d := range b.claim("anna", `,"max":2`) {
		require.Equal(t, 200, b.report(d, "release", ``).status)
		assert.Equal(t, asyncflow.StatusWaiting, b.task(d.TaskID).Status)
	}
	all := b.claim("bob", `,"max":2`)
	require.Len(t, all, 2)
	for range 2 {
		require.Equal(t, 200, b.report(all[0], "release", ``).status)
	}
	b.exec(`UPDATE tenant_acme.lease
		SET leased_at = leased_at - interval '2 hours', until = until - interval '2 hours'`)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)
	_, err = b.store.Rescue(t.Context(), judge)
	require.NoError(t, err)
	for i, last := range []string{"the claimer gave it back", "nothing was heard of the claim"} {
		task := b.task(ids[i])
		assert.Equal(t, []any{asyncflow.StatusFailed, "it was tried or given back 32000 times; " +
			"that is the limit. The last time: " + last}, []any{task.Status, task.Error})
	}
	assert.Len(t, read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=judge", "")).Data, 2)
	assert.Equal(t, 409, b.call("POST", "/v1/tasks/"+ids[0]+"/redrive", "").status)
}

func TestClaimWaits(t *testing.T) {
	b := setup(t)
	b.claimed()
	answers := make(chan []api.Delivery)
	for _, claimer := range []string{"anna", "bob"} {
		go func() { answers <- b.claim(claimer, `,"max":5,"wait":"1m"`) }()
	}
	for i := range 2 {
		id := b.submitJudge(1)[0]
		got := <-answers
		require.Len(t, got, 1, "claimer %d", i)
		assert.Equal(t, id, got[0].TaskID)
	}
	assert.Empty(t, b.claim("carol", `,"wait":"10ms"`))

	later := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"judge","context":1,"delay":"1s"}`)).ID
	got := b.claim("carol", `,"wait":"1m"`)
	require.Len(t, got, 1, "it waits until the task is due")
	assert.Equal(t, later, got[0].TaskID)
	assert.False(t, b.store.Clock.Now().Before(b.task(later).CreatedAt.Add(time.Second)))

	go func() { answers <- b.claim("dora", `,"wait":"1m"`) }()
	b.waitingClaims(1)
	assert.Empty(t, b.claim("dora", ``))
	assert.Empty(t, <-answers, "a later call ends the one before")

	require.Equal(t, 200, b.call("POST", "/v1/task-types/judge/pause", `{}`).status)
	id := b.submitJudge(1)[0]
	assert.Empty(t, b.claim("erik", ``), "the type is paused")
	go func() { answers <- b.claim("erik", `,"wait":"1m"`) }()
	b.waitingClaims(1)
	require.Equal(t, 200, b.call("POST", "/v1/task-types/judge/resume", `{}`).status)
	got = <-answers
	require.Len(t, got, 1)
	assert.Equal(t, id, got[0].TaskID)
}

func TestBadClaims(t *testing.T) {
	b := setupTwo(t)
	b.claimed()
	b.pipe()
	worker := b.newToken("acme", auth.ScopeWork)
	long := strings.Repeat("x", 129)
	const known = `"type":"judge","stage":"look",`
	const anna = known + `"claimer":"anna",`
	for body, want := range map[string]string{
		known + `"claimer":""`:                              "400 claimer",
		known + `"claimer":"` + long + `"`:                  "400 claimer",
		known + `"claimer":"anna b"`:                        "400 claimer",
		known + `"claimer":"ann\u00e4"`:                     "400 claimer",
		anna + `"max":0`:                                    "400 max",
		anna + `"max":1001`:                                 "400 max",
		anna + `"max":-1`:                                   "400 max",
		anna + `"wait":"61s"`:                               "400 wait",
		anna + `"wait":"-1s"`:                               "400 wait",
		anna + `"held":["judge"]`:                           "400 held",
		anna + `"other":1`:                                  "400 other",
		`"type":"Judge","stage":"look","claimer":"anna"`:    "400 type",
		`"type":"judge","claimer":"anna"`:                   "400 stage",
		`"type":"judge","stage":"nowhere","claimer":"anna"`: "400 stage",
		`"type":"other","stage":"look","claimer":"anna"`:    "404 type",
		`"type":"pipe","stage":"first","claimer":"anna"`:    "409 ",
		anna + `"held":[` + strings.Repeat(`"judge.1.1",`, 1000) + `"judge.1.1"]`: "400 held",
	} {
		a := b.callAs(worker, "POST", "/v1/claims", "{"+body+"}")
		field := ""
		if len(a.problem.Errors) > 0 {
			field = a.problem.Errors[0].Field
		}
		assert.Equal(t, want, fmt.Sprintf("%d %s", a.status, field), "%.200s: %.300s", body, a.body)
		assert.LessOrEqual(t, len(a.problem.Errors), 1, "%.200s: one fault a field", body)
	}
	ask := `{"type":"judge","stage":"look","claimer":"anna"}`
	assert.Equal(t, 403, b.call("POST", "/v1/claims", ask).status, "without the scope work")
	assert.Equal(t, 401, b.callAs("", "POST", "/v1/claims", ask).status)
	ids := b.submitJudge(1)
	assert.Equal(t, 404, b.callAs(b.newToken("other", auth.ScopeWork), "POST", "/v1/claims",
		ask).status,
		"another tenant's type")
	d := b.claim("anna", "")[0]
	assert.Equal(t, ids[0], d.TaskID)
	endpoint := b.call("POST", "/v1/endpoints",
		`{"type":"judge","stage":"look","url":"https://worker.example.com/"}`)
	require.Equal(t, 400, endpoint.status, "%s", endpoint.body)
	assert.Equal(t, "stage", endpoint.problem.Errors[0].Field)
	for stages, field := range map[string]string{
		`[{"name":"look","mode":"pull"}]`: "stages[0].mode",
	} {
		a := b.call("PUT", "/v1/task-types/bad", `{"stages":`+stages+`}`)
		require.Equal(t, 400, a.status)
		assert.Equal(t, field, a.problem.Errors[0].Field)
	}
	for _, field := range []string{`"flow":{"max_in_flight":1}`, `"max_in_flight":1`,
		`"rate":"1/s"`} {
		a := b.call("PUT", "/v1/task-types/bad",
			`{"stages":[{"name":"look","mode":"claim"}],`+field+`}`)
		require.Equal(t, 400, a.status)
		assert.Contains(t, `"`+a.problem.Errors[0].Field, field[:5])
	}
}

// The token of a claim lasts as long as its work may take, as that of a push does.
func TestTheTokenOfAClaimLasts(t *testing.T) {
	b := setup(t)
	answer := b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"look","mode":"claim","max_processing_time":"10h"}]}`)
	require.Equal(t, 201, answer.status, "%s", answer.body)
	b.submitJudge(1)
	d := b.claim("anna", "")[0]
	require.Equal(t, 200, b.report(d, "heartbeat", ``).status)
	id, err := asyncflow.ParseTaskID(d.TaskID)
	require.NoError(t, err)
	c, err := b.keys.VerifyCompletion(d.Callback.Token, id)
	require.NoError(t, err)
	assert.True(t, c.Expiry.After(b.task(d.TaskID).Deadline))
}
