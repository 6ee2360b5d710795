package asyncflow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestHealthRoom(t *testing.T) {
	t.Parallel()
	open := asyncflow.Health{State: asyncflow.HealthOpen, Since: now, Until: now.Add(5 * time.Second)}
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
		at := now.Add(tc.after)
		assert.Equal(t, tc.state, tc.At(at), name)
		assert.Equal(t, tc.capacity, tc.Capacity(at), name)
	}
}

func TestHealthOpensAndRecovers(t *testing.T) {
	t.Parallel()
	refused := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "connection refused"}
	var h asyncflow.Health
	assert.Equal(t, h, h.Failed(refused, asyncflow.FailuresToOpen-1, now, now), "not yet")
	at := now
	open := h.Failed(refused, asyncflow.FailuresToOpen, at, at)
	require.Equal(t, asyncflow.Health{State: asyncflow.HealthOpen, Since: at,
		Until: at.Add(asyncflow.FirstOpen), Pause: asyncflow.FirstOpen, Reason: "connection refused"},
		open)
	assert.Equal(t, open, open.Failed(refused, 20, at, at.Add(time.Second)), "what was on its way")
	assert.Equal(t, open, open.Answered(at, at.Add(6*time.Second)), "that too, though it was done")
	assert.Equal(t, open, open.Failed(refused, 20, at.Add(-time.Second), at.Add(6*time.Second)),
		"and that")
	for pause := 2 * asyncflow.FirstOpen; pause < 2*asyncflow.MaxOpen; pause *= 2 {
		at = open.Until.Add(time.Second)
		open = open.Failed(refused, 1, open.Until, at)
		require.Equal(t, min(pause, asyncflow.MaxOpen), open.Until.Sub(at),
			"each try that fails doubles it")
	}
	at = open.Until.Add(time.Second)
	back := open.Answered(open.Until, at)
	require.Equal(t, asyncflow.HealthClosed, back.State)
	require.Equal(t, at, back.Since)
	assert.Equal(t, back, back.Answered(at, at.Add(time.Hour)))
	again := back.Failed(refused, asyncflow.FailuresToOpen, at, at.Add(30*time.Second))
	assert.Equal(t, asyncflow.MaxOpen, again.Pause, "a relapse")
	later := back.Failed(refused, asyncflow.FailuresToOpen, at.Add(time.Minute), at.Add(2*time.Minute))
	assert.Equal(t, asyncflow.FirstOpen, later.Pause, "long ago")
}

func TestHealthBySpecialAnswers(t *testing.T) {
	t.Parallel()
	slow := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 429, RetryAfter: 30 * time.Second,
		Error: "429 Too Many Requests"}
	h := asyncflow.Health{}.Failed(slow, 1, now, now)
	assert.Equal(t, asyncflow.Health{State: asyncflow.HealthOpen, Since: now,
		Until: now.Add(30 * time.Second), Reason: "429 Too Many Requests"}, h)
	slow.RetryAfter = 10 * time.Second
	assert.Equal(t, h, h.Failed(slow, 2, now, now.Add(time.Second)), "it asks for less than it has")
	slow.Status, slow.RetryAfter = 503, 24*time.Hour
	assert.Equal(t, asyncflow.MaxSlowDown, h.Failed(slow, 2, now, now).Until.Sub(now))
	slow.Status = 500
	assert.Equal(t, asyncflow.Health{}, asyncflow.Health{}.Failed(slow, 1, now, now),
		"only these two may ask")

	gone := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 410, Error: "410 Gone"}
	disabled := h.Failed(gone, 1, now, now.Add(time.Minute))
	assert.Equal(t, asyncflow.Health{State: asyncflow.HealthDisabled, Since: now.Add(time.Minute),
		Reason: "410 Gone"}, disabled)
	assert.Equal(t, disabled, disabled.Failed(slow, 100, now, now.Add(time.Hour)))
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
		"rejected":         {asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200}, false},
		"accepted":         {asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 202}, false},
	} {
		assert.Equal(t, tc.failed, tc.EndpointFailed(), name)
	}
}

// Failing is an endpoint that gets nothing after failures, not one that asked for some time.
func TestHealthFailing(t *testing.T) {
	t.Parallel()
	refused := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "connection refused"}
	var h asyncflow.Health
	assert.False(t, h.Failing())
	failed := h.Failed(refused, asyncflow.FailuresToOpen, now, now)
	assert.True(t, failed.Failing())
	later := failed.Until.Add(time.Second)
	assert.True(t, failed.Failed(refused, 1, failed.Until, later).Failing())
	busy := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 503, RetryAfter: time.Minute}
	assert.False(t, h.Failed(busy, 1, now, now).Failing())
	assert.False(t, failed.Failed(busy, 1, failed.Until, later).Failing())
	assert.False(t, failed.Answered(failed.Until, later).Failing())
	assert.True(t, h.Failed(asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 410}, 1, now,
		now).Failing())
}
