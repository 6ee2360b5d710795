package asyncflow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// What would put a task with a full journal back in line fails it. Stages go on.
func TestDecideFullJournal(t *testing.T) {
	t.Parallel()
	for kind, want := range map[asyncflow.OutcomeKind]asyncflow.VerdictKind{
		asyncflow.OutcomeReleased: asyncflow.Fail, asyncflow.OutcomeFailed: asyncflow.Fail,
		asyncflow.OutcomeLost: asyncflow.Fail, asyncflow.OutcomeSnoozed: asyncflow.Fail,
		asyncflow.OutcomeDone:      asyncflow.Advance,
		asyncflow.OutcomeCancelled: asyncflow.Cancel,
	} {
		t.Run(string(kind), func(t *testing.T) {
			l := asyncflow.Lease{Stage: "inspect", Attempt: 1, Seq: asyncflow.MaxJournal}
			v := asyncflow.Decide(pipeline(), l,
				asyncflow.Outcome{Kind: kind, Error: "why", FirstSent: now}, now)
			require.Equal(t, want, v.Kind)
			if want == asyncflow.Fail {
				require.Equal(t, "it was tried or given back 32000 times; that is the limit. "+
					"The last time: why", v.Error)
			}
			l.Seq--
			v = asyncflow.Decide(pipeline(), l, asyncflow.Outcome{Kind: kind, FirstSent: now}, now)
			require.Empty(t, v.Error)
		})
	}
}

// The whole table: each outcome at each place of the pipeline, with attempts left
// and without, under each way to override the policy.
func TestDecideKind(t *testing.T) {
	t.Parallel()
	// gone: the stage is no longer in the type
	type row struct{ onward, last, gone asyncflow.VerdictKind }
	const again = asyncflow.Retry // while attempts are left, else Fail
	table := map[asyncflow.OutcomeKind]row{
		asyncflow.OutcomeDone:     {asyncflow.Advance, asyncflow.Succeed, asyncflow.Park},
		asyncflow.OutcomeFailed:   {again, again, asyncflow.Park},
		asyncflow.OutcomeLost:     {again, again, asyncflow.Park},
		asyncflow.OutcomeRejected: {asyncflow.Fail, asyncflow.Fail, asyncflow.Fail},
		asyncflow.OutcomeReleased: {asyncflow.Return, asyncflow.Return, asyncflow.Return},

		asyncflow.OutcomeCancelled: {asyncflow.Cancel, asyncflow.Cancel, asyncflow.Cancel},
	}
	overrides := []struct {
		retry       *asyncflow.RetryPolicy
		maxAttempts int
	}{
		{nil, 3},
		{&asyncflow.RetryPolicy{}, 3},
		{&asyncflow.RetryPolicy{Interval: asyncflow.Seconds(-1)}, 3},
		{&asyncflow.RetryPolicy{MaxAttempts: 1}, 1},
		{&asyncflow.RetryPolicy{MaxAttempts: 5}, 5},
	}
	for kind, row := range table {
		t.Run(string(kind), func(t *testing.T) {
			for stage, want := range map[string]asyncflow.VerdictKind{
				"inspect": row.onward, "resize": row.onward, "report": row.last,
				"removed": row.gone,
			} {
				t.Run(stage, func(t *testing.T) {
					for _, o := range overrides {
						for attempt := 1; attempt <= 6; attempt++ {
							want := want
							if want == again && attempt >= o.maxAttempts {
								want = asyncflow.Fail
							}
							l := asyncflow.Lease{Stage: stage, Attempt: attempt,
								Options: asyncflow.Options{Retry: o.retry}}
							got := asyncflow.Decide(pipeline(), l, asyncflow.Outcome{Kind: kind},
								now)
							require.Equal(t, want, got.Kind, "%s at %s, attempt %d of %d", kind,
								stage, attempt,
								o.maxAttempts)
							requireWhole(t, got, fmt.Sprintf("%s at %s", kind, stage))
						}
					}
				})
			}
		})
	}
}

// requireWhole checks that no attempt follows a final verdict.
func requireWhole(t *testing.T, v asyncflow.Verdict, message string) {
	if v.Kind == asyncflow.Succeed || v.Kind == asyncflow.Fail || v.Kind == asyncflow.Cancel {
		require.Equal(t, asyncflow.Verdict{Kind: v.Kind}, v, message)
		require.True(t, v.Final().Final(), message)
		return
	}
	require.NotEmpty(t, v.Stage, message)
	require.Positive(t, v.Attempt, message)
	require.Empty(t, v.Final(), message)
}

func TestDecide(t *testing.T) {
	stood := now.Add(-time.Hour)
	lease := func(stage string, attempt int, o asyncflow.Options) asyncflow.Lease {
		return asyncflow.Lease{Stage: stage, Attempt: attempt, OrderTime: stood, Options: o}
	}
	type options = asyncflow.Options
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	failed := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}
	lost := asyncflow.Outcome{Kind: asyncflow.OutcomeLost}
	slow := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, RetryAfter: 20 * time.Second}
	busy := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 429, Error: "later"}
	released := asyncflow.Outcome{Kind: asyncflow.OutcomeReleased}

	type when struct {
		lease   asyncflow.Lease
		outcome asyncflow.Outcome
		want    asyncflow.Verdict
	}
	advance := func(stage string, head time.Duration) asyncflow.Verdict {
		return asyncflow.Verdict{Kind: asyncflow.Advance, Stage: stage, Attempt: 1,
			OrderTime: now.Add(-head)}
	}
	again := func(stage string, attempt int, pause time.Duration) asyncflow.Verdict {
		return asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: attempt,
			OrderTime: now.Add(pause), Reason: asyncflow.WaitRetry}
	}
	// snoozed is a snooze of 2 minutes, so long after the stage's first delivery.
	snoozed := func(after time.Duration) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed, RetryAfter: 2 * time.Minute,
			FirstSent: now.Add(-after)}
	}
	put := func(stage string, attempt int, pause time.Duration) asyncflow.Verdict {
		return asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: attempt,
			OrderTime: now.Add(pause), Reason: asyncflow.WaitSnooze}
	}
	parallel(t, map[string]when{
		"advance: now less the next stage's priority": {lease("inspect", 3, options{}), done,
			advance("resize", 10*time.Second)},
		"advance: the task's priority beats the stage": {lease("inspect", 1,
			options{Priority: asyncflow.Priority{7}}), done, advance("resize", 7*time.Second)},
		"advance: a list has one for each stage": {lease("resize", 1,
			options{Priority: asyncflow.Priority{1, 2, 3}}), done,
			advance("report", 3*time.Second)},
		"advance: the last of a list repeats": {lease("resize", 1,
			options{Priority: asyncflow.Priority{1, 2}}), done, advance("report", 2*time.Second)},
		"advance: past the attempts is still done": {lease("resize", 99, options{}), done,
			advance("report", 20*time.Second)},

		"retry: doubling": {lease("inspect", 2, options{}), failed,
			again("inspect", 3, 2*time.Second)},
		"retry: constant": {lease("resize", 2, options{}), failed,
			again("resize", 3, 5*time.Second)},
		"retry: a list": {lease("report", 2, options{}), failed,
			again("report", 3, 8*time.Second)},
		"retry: priority doesn't shorten it": {lease("resize", 1,
			options{Priority: asyncflow.Priority{600}}), failed, again("resize", 2, 5*time.Second)},
		"retry: after a loss too": {lease("resize", 1, options{}), lost,
			again("resize", 2, 5*time.Second)},
		"retry: Retry-After": {lease("resize", 1, options{}), slow,
			again("resize", 2, 20*time.Second)},
		"retry: Retry-After is clamped": {lease("inspect", 1, options{}), slow,
			again("inspect", 2, 10*time.Second)},
		"retry: the task's interval": {
			lease("resize", 2,
				options{Retry: &asyncflow.RetryPolicy{Interval: asyncflow.Seconds(-30)}}),
			failed, again("resize", 3, 30*time.Second)},
		"retry: by status": {
			lease("resize", 2,
				options{Retry: &asyncflow.RetryPolicy{
					Interval: asyncflow.Rule("status == 429 and error == 'later' ? 60 : 1")}}),
			busy,
			again("resize", 3, time.Minute)},
		"retry: the task's attempts": {
			lease("resize", 3, options{Retry: &asyncflow.RetryPolicy{MaxAttempts: 4}}), failed,
			again("resize", 4, 5*time.Second)},

		"snooze: the attempt stays": {lease("inspect", 2, options{}), snoozed(time.Minute),
			put("inspect", 2, 2*time.Minute)},
		"snooze: to its end at most": {lease("inspect", 2, options{}), snoozed(59 * time.Minute),
			put("inspect", 2, time.Minute)},
		"snooze: after its end an attempt failed": {lease("resize", 2, options{}),
			snoozed(time.Hour), asyncflow.Verdict{Kind: asyncflow.Retry, Stage: "resize",
				Attempt: 3, OrderTime: now.Add(5 * time.Second), Reason: asyncflow.WaitRetry,
				Error: "it was snoozed for longer than max_snooze, 1h"}},
		"snooze: after its end, the last attempt": {lease("resize", 3, options{}),
			snoozed(time.Hour), asyncflow.Verdict{Kind: asyncflow.Fail,
				Error: "it was snoozed for longer than max_snooze, 1h"}},
		"snooze: in a stage that is no more": {lease("removed", 1, options{}),
			snoozed(time.Minute), asyncflow.Verdict{Kind: asyncflow.Park, Stage: "removed",
				Attempt: 1, OrderTime: now, Reason: asyncflow.WaitEndpoint}},
		"return: back to where it stood": {lease("resize", 2, options{}), released,
			asyncflow.Verdict{Kind: asyncflow.Return, Stage: "resize", Attempt: 2,
				OrderTime: stood}},
		"return: from a stage that is no more": {lease("removed", 1, options{}), released,
			asyncflow.Verdict{Kind: asyncflow.Return, Stage: "removed", Attempt: 1,
				OrderTime: stood}},
	}, func(t *testing.T, c when) {
		require.Equal(t, c.want, asyncflow.Decide(pipeline(), c.lease, c.outcome, now))
	})
}

// At its end_by a task fails, whatever its attempt reported, unless it was cancelled.
func TestDecideExpiry(t *testing.T) {
	t.Parallel()
	l := asyncflow.Lease{Stage: "resize", Attempt: 1,
		Options: asyncflow.Options{Lifetime: &asyncflow.Lifetime{EndBy: now}}}
	for _, kind := range []asyncflow.OutcomeKind{asyncflow.OutcomeDone, asyncflow.OutcomeFailed,
		asyncflow.OutcomeSnoozed, asyncflow.OutcomeReleased, asyncflow.OutcomeLost} {
		t.Run(string(kind), func(t *testing.T) {
			v := asyncflow.Decide(pipeline(), l, asyncflow.Outcome{Kind: kind}, now)
			require.Equal(t, asyncflow.Fail, v.Kind)
			require.True(t, v.Expired)
			require.Contains(t, v.Error, "expired: it had not ended by ")
			v = asyncflow.Decide(pipeline(), l, asyncflow.Outcome{Kind: kind},
				now.Add(-time.Second))
			require.False(t, v.Expired, "a second before")
		})
	}
	v := asyncflow.Decide(pipeline(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled}, now)
	require.False(t, v.Expired)
}

func TestParkFor(t *testing.T) {
	t.Parallel()
	l := asyncflow.Lease{Stage: "resize", Attempt: 2, OrderTime: now.Add(-time.Hour)}
	require.Equal(t,
		asyncflow.Verdict{Kind: asyncflow.Park, Stage: "resize", Attempt: 2,
			OrderTime: now.Add(-time.Hour), Reason: asyncflow.WaitEndpoint},
		asyncflow.ParkFor(l, asyncflow.WaitEndpoint))
}

func TestFinal(t *testing.T) {
	t.Parallel()
	for kind, want := range map[asyncflow.VerdictKind]asyncflow.Status{
		asyncflow.Succeed: asyncflow.StatusSucceeded,
		asyncflow.Fail:    asyncflow.StatusFailed,
		asyncflow.Cancel:  asyncflow.StatusCancelled,
		asyncflow.Advance: "", asyncflow.Retry: "", asyncflow.Park: "", asyncflow.Await: "",
		asyncflow.Return: "",
	} {
		t.Run(string(kind), func(t *testing.T) {
			require.Equal(t, want, asyncflow.Verdict{Kind: kind}.Final())
		})
	}
	var final []asyncflow.Status
	for _, s := range asyncflow.Statuses {
		if s.Final() {
			final = append(final, s)
		}
	}
	require.Equal(t, []asyncflow.Status{asyncflow.StatusSucceeded, asyncflow.StatusFailed,
		asyncflow.StatusCancelled}, final)
	require.Len(t, asyncflow.Statuses, 6)
}

func TestMaxAttempts(t *testing.T) {
	t.Parallel()
	own := asyncflow.Options{Retry: &asyncflow.RetryPolicy{MaxAttempts: 9}}
	require.Equal(t, 3, pipeline().MaxAttempts("resize", asyncflow.Options{}))
	require.Equal(t, 3, pipeline().MaxAttempts("resize",
		asyncflow.Options{Retry: &asyncflow.RetryPolicy{Interval: asyncflow.Seconds(1)}}))
	require.Equal(t, 9, pipeline().MaxAttempts("resize", own))
	require.Zero(t, pipeline().MaxAttempts("removed", own))
}

// Two tasks that fail together don't come back together, and deciding the same
// settlement twice gives the same.
func TestDecideJitter(t *testing.T) {
	t.Parallel()
	tt := pipeline()
	tt.Stages[1].Retry.Interval = asyncflow.Rule(asyncflow.Poly)
	pause := func(task int64, seq int) time.Duration {
		l := asyncflow.Lease{ID: asyncflow.NewTaskID("thumbnails", 1, task), Seq: seq,
			Stage: "resize", Attempt: 1}
		return asyncflow.Decide(tt, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed},
			now).OrderTime.Sub(now)
	}
	require.Equal(t, pause(1, 1), pause(1, 1))
	require.NotEqual(t, pause(1, 1), pause(2, 1))
	require.NotEqual(t, pause(1, 1), pause(1, 2))
	for task := range int64(100) {
		require.InDelta(t, 30*time.Second, pause(task, 1), float64(15*time.Second))
	}
}
