package asyncflow_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestHealthRoom(t *testing.T) {
	t.Parallel()
	open := asyncflow.Health{State: asyncflow.HealthOpen, Since: now,
		Until: now.Add(5 * time.Second)}
	back := asyncflow.Health{State: asyncflow.HealthClosed, Since: now}
	for name, tc := range map[string]struct {
		asyncflow.Health
		after    time.Duration
		state    asyncflow.HealthState
		capacity int
	}{
		"well":         {asyncflow.Health{}, 0, asyncflow.HealthClosed, asyncflow.Unlimited},
		"open":         {open, 5*time.Second - 1, asyncflow.HealthOpen, 0},
		"half-open":    {open, 5 * time.Second, asyncflow.HealthHalfOpen, 1},
		"just back":    {back, 0, asyncflow.HealthClosed, 2},
		"back a while": {back, 3 * asyncflow.RampStep, asyncflow.HealthClosed, 16},
		"almost back": {back, asyncflow.RampSteps*asyncflow.RampStep - 1, asyncflow.HealthClosed,
			1024},
		"back for good": {back, asyncflow.RampSteps * asyncflow.RampStep, asyncflow.HealthClosed,
			asyncflow.Unlimited},
		"another's time": {back, -time.Second, asyncflow.HealthClosed, 2},
		"disabled": {asyncflow.Health{State: asyncflow.HealthDisabled, Since: now}, time.Hour,
			asyncflow.HealthDisabled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			at := now.Add(tc.after)
			assert.Equal(t, tc.state, tc.At(at), name)
			assert.Equal(t, tc.capacity, tc.Capacity(at), name)
		})
	}
}

// runOf returns a run of n tasks that failed.
func runOf(n int, o asyncflow.Outcome, at time.Time) (run asyncflow.FailureRun) {
	for i := range n {
		run.Add(asyncflow.TaskID{Number: int64(i)}, o, at)
	}
	return run
}

func TestHealthOpensAndRecovers(t *testing.T) {
	t.Parallel()
	refused := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "connection refused"}
	enough := runOf(asyncflow.FailuresToOpen, refused, now)
	var none asyncflow.FailureRun
	var h asyncflow.Health
	assert.Equal(t, h, h.Failed(refused, runOf(asyncflow.FailuresToOpen-1, refused, now), now, now),
		"not yet")
	at := now
	open := h.Failed(refused, enough, at, at)
	require.Equal(t, asyncflow.Health{State: asyncflow.HealthOpen, Since: at,
		Until: at.Add(asyncflow.FirstOpen), Pause: asyncflow.FirstOpen,
		Reason: "connection refused"},
		open)
	assert.Equal(t, open, open.Failed(refused, enough, at, at.Add(time.Second)),
		"what was on its way")
	assert.Equal(t, open, open.Answered(at, at.Add(6*time.Second)), "that too, though it was done")
	assert.Equal(t, open, open.Failed(refused, enough, at.Add(-time.Second), at.Add(6*time.Second)),
		"and that")
	for pause := 2 * asyncflow.FirstOpen; pause < 2*asyncflow.MaxOpen; pause *= 2 {
		at = open.Until.Add(time.Second)
		open = open.Failed(refused, none, open.Until, at)
		require.Equal(t, min(pause, asyncflow.MaxOpen), open.Until.Sub(at),
			"each try that fails doubles it")
	}
	at = open.Until.Add(time.Second)
	back := open.Answered(open.Until, at)
	require.Equal(t, asyncflow.HealthClosed, back.State)
	require.Equal(t, at, back.Since)
	assert.Equal(t, back, back.Answered(at, at.Add(time.Hour)))
	again := back.Failed(refused, enough, at, at.Add(30*time.Second))
	assert.Equal(t, asyncflow.MaxOpen, again.Pause, "a relapse")
	later := back.Failed(refused, enough, at.Add(time.Minute), at.Add(2*time.Minute))
	assert.Equal(t, asyncflow.FirstOpen, later.Pause, "long ago")
}

func TestHealthBySpecialAnswers(t *testing.T) {
	t.Parallel()
	var none asyncflow.FailureRun
	slow := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 429,
		RetryAfter: 30 * time.Second, Error: "429 Too Many Requests"}
	h := asyncflow.Health{}.Failed(slow, none, now, now)
	assert.Equal(t, asyncflow.Health{State: asyncflow.HealthOpen, Since: now,
		Until: now.Add(30 * time.Second), Reason: "429 Too Many Requests"}, h)
	slow.RetryAfter = 10 * time.Second
	assert.Equal(t, h, h.Failed(slow, none, now, now.Add(time.Second)),
		"it asks for less than it has")
	slow.Status, slow.RetryAfter = 503, 24*time.Hour
	assert.Equal(t, asyncflow.MaxSlowDown, h.Failed(slow, none, now, now).Until.Sub(now))
	slow.Status = 500
	assert.Equal(t, asyncflow.Health{}, asyncflow.Health{}.Failed(slow, none, now, now),
		"only these two may ask")

	gone := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 410, Error: "410 Gone"}
	disabled := h.Failed(gone, none, now, now.Add(time.Minute))
	assert.Equal(t, asyncflow.Health{State: asyncflow.HealthDisabled, Since: now.Add(time.Minute),
		Reason: "410 Gone"}, disabled)
	assert.Equal(t, disabled, disabled.Failed(slow, none, now, now.Add(time.Hour)))
	assert.Equal(t, disabled, disabled.Answered(now.Add(time.Hour), now.Add(time.Hour)))
}

func TestEndpointFailed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		asyncflow.Outcome
		failed bool
	}{
		"done":             {asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}, false},
		"no answer":        {asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}, true},
		"500":              {asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500}, true},
		"404":              {asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 404}, true},
		"a wish for retry": {asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200}, false},
		"rejected": {asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200},
			false},
		"accepted": {asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202},
			false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.failed, tc.EndpointFailed(), name)
		})
	}
}

// Failing is an endpoint that gets nothing after failures, not one that asked for some time.
func TestHealthFailing(t *testing.T) {
	t.Parallel()
	refused := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "connection refused"}
	var none asyncflow.FailureRun
	var h asyncflow.Health
	assert.False(t, h.Failing())
	failed := h.Failed(refused, runOf(asyncflow.FailuresToOpen, refused, now), now, now)
	assert.True(t, failed.Failing())
	later := failed.Until.Add(time.Second)
	assert.True(t, failed.Failed(refused, none, failed.Until, later).Failing())
	busy := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 503, RetryAfter: time.Minute}
	assert.False(t, h.Failed(busy, none, now, now).Failing())
	assert.False(t, failed.Failed(busy, none, failed.Until, later).Failing())
	assert.False(t, failed.Answered(failed.Until, later).Failing())
	assert.True(t, h.Failed(asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 410}, none,
		now, now).Failing())
}

// A worker that answers isn't down because of the tasks that it can't do. If it did none for a
// while, it gets one now and then.
func TestHealthOfAWorkerThatAnswers(t *testing.T) {
	t.Parallel()
	broken := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500, Error: "500"}
	after := now.Add(asyncflow.NoSuccessToOpen)
	var h asyncflow.Health
	run := runOf(1000, broken, now)
	assert.Equal(t, h, h.Failed(broken, run, now, after.Add(-1)), "others may succeed")
	few := runOf(asyncflow.FailuresToOpen-1, broken, now)
	assert.Equal(t, h, h.Failed(broken, few, now, after.Add(time.Hour)), "these may be to blame")
	at := after
	h = h.Failed(broken, run, at, at)
	for range 3 {
		require.Equal(t, asyncflow.HealthOpen, h.State)
		require.Equal(t, asyncflow.ShortOpen, h.Until.Sub(at), "it never gets longer")
		require.True(t, h.Failing())
		at = h.Until
		h = h.Failed(broken, asyncflow.FailureRun{}, at, at)
	}
	refused := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "connection refused"}
	h = h.Failed(refused, asyncflow.FailureRun{}, h.Until, h.Until)
	assert.Equal(t, asyncflow.FirstOpen, h.Pause, "now it is down")
	h = h.Failed(broken, asyncflow.FailureRun{}, h.Until, h.Until)
	assert.Equal(t, asyncflow.ShortOpen, h.Pause, "it is there again")
}

// A task that hangs keeps another one from trying the endpoint for a short pause only. Where no
// worker was found, there is one task at a time.
func TestATaskThatHangsIsNotTheOnlyProbe(t *testing.T) {
	t.Parallel()
	late := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Failure: asyncflow.FailureTimeout}
	run := runOf(asyncflow.FailuresToOpen, late, now)
	at := now.Add(asyncflow.NoSuccessToOpen)
	h := asyncflow.Health{}.Failed(late, run, now, at)
	require.Equal(t, asyncflow.ShortOpen, h.Pause)
	until := h.Until
	assert.Equal(t, until, h.CountsSince(until.Add(asyncflow.ShortOpen)))
	assert.Equal(t, until.Add(time.Second),
		h.CountsSince(until.Add(asyncflow.ShortOpen+time.Second)))
	assert.True(t, h.FreshFirst(until))

	well := h.Answered(until, until)
	assert.Equal(t, until, well.CountsSince(until.Add(time.Hour)))
	assert.True(t, well.FreshFirst(until))
	assert.False(t, well.FreshFirst(until.Add(asyncflow.RampSteps*asyncflow.RampStep)))

	refused := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed,
		Failure: asyncflow.FailureNoConnection}
	dead := h.Failed(refused, asyncflow.FailureRun{}, until, until)
	assert.Equal(t, dead.Until, dead.CountsSince(dead.Until.Add(time.Hour)))
	assert.False(t, dead.Answered(dead.Until, dead.Until).FreshFirst(dead.Until))
}

// One task opens no circuit breaker, however often it fails; nor do failures without an answer
// among others with one.
func TestFailuresCountByTask(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		asyncflow.Outcome
		there bool // the worker is
	}{
		"refused": {asyncflow.Outcome{Failure: asyncflow.FailureNoConnection}, false},
		"timeout": {asyncflow.Outcome{Failure: asyncflow.FailureTimeout}, true},
		"lost":    {asyncflow.Outcome{Failure: asyncflow.FailureConnectionLost}, true},
		"500":     {asyncflow.Outcome{Status: 500}, true},
		"404":     {asyncflow.Outcome{Status: 404}, true},
		"429":     {asyncflow.Outcome{Status: 429}, false},
		"502":     {asyncflow.Outcome{Status: 502}, false},
		"503":     {asyncflow.Outcome{Status: 503}, false},
		"504":     {asyncflow.Outcome{Status: 504}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := tc.Outcome
			o.Kind = asyncflow.OutcomeFailed
			var one asyncflow.FailureRun
			for range 1000 {
				one.Add(asyncflow.TaskID{Number: 1}, o, now)
			}
			assert.False(t, one.Opens(o, now.Add(time.Hour)))
			run := runOf(asyncflow.FailuresToOpen, o, now)
			assert.Equal(t, !tc.there, run.Opens(o, now))
			run.Add(asyncflow.TaskID{Number: 99}, asyncflow.Outcome{Kind: o.Kind, Status: 500}, now)
			run.Add(asyncflow.TaskID{Number: 100}, o, now)
			assert.False(t, run.Opens(o, now), "it has answered meanwhile")
		})
	}
}

func TestStoppedText(t *testing.T) {
	t.Parallel()
	e := func(h asyncflow.Health) asyncflow.Endpoint {
		return asyncflow.Endpoint{ID: "id", URL: "https://w", Weight: 1, Health: h}
	}
	open := e(asyncflow.Health{State: asyncflow.HealthOpen, Since: now, Until: now.Add(time.Minute),
		Reason: "refused"})
	gone := e(asyncflow.Health{State: asyncflow.HealthDisabled, Reason: strings.Repeat("ä", 1000)})
	drained := open
	drained.Weight = 0
	text := func(at time.Time, all ...asyncflow.Endpoint) string {
		return asyncflow.StoppedText(all, at)
	}
	assert.Empty(t, text(now, e(asyncflow.Health{}), drained))
	assert.Equal(t, "Deliveries to https://w have stopped until "+
		now.Add(time.Minute).UTC().Format(time.RFC3339)+": refused", text(now, open))
	assert.Equal(t, "Deliveries to https://w have stopped until one task succeeds, which is tried "+
		"now: refused", text(now.Add(time.Minute), open))
	both := text(now, open, gone)
	assert.Contains(t, both,
		"refused; Deliveries to https://w have stopped until the endpoint id is enabled: ää")
	assert.Less(t, len(both), 1000)
	assert.True(t, utf8.ValidString(both))
}
