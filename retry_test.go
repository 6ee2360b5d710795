package asyncflow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

var (
	attempts  = rapid.IntRange(1, asyncflow.MaxAttempts-1)
	unlimited = asyncflow.MaxAttempts // allows another attempt after each of attempts
)

func TestNextEndsAtMaxAttempts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := asyncflow.RetryPolicy{
			MaxAttempts: rapid.IntRange(1, asyncflow.MaxAttempts).Draw(t, "max_attempts"),
			Interval:    intervals().Draw(t, "interval"),
		}
		made := 0
		for again := true; again; made++ {
			var pause time.Duration
			f := failures().Draw(t, "failure")
			f.Attempt = made + 1
			pause, again = policy.Next(f)
			if !again {
				require.Zero(t, pause)
			}
		}
		require.Equal(t, policy.MaxAttempts, made)
	})
}

func TestNextRetryAfter(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		name                    string
		pause, retryAfter, want time.Duration
	}{
		{"none asked", time.Minute, 0, time.Minute},
		{"negative", time.Minute, -time.Hour, time.Minute},
		{"shorter doesn't shorten", time.Minute, time.Second, time.Minute},
		{"the same", time.Minute, time.Minute, time.Minute},
		{"longer is honoured", time.Minute, 2 * time.Minute, 2 * time.Minute},
		{"tenfold", time.Minute, 10 * time.Minute, 10 * time.Minute},
		{"more than tenfold", time.Minute, 11 * time.Minute, 10 * time.Minute},
		{"for ever", time.Minute, 1<<63 - 1, 10 * time.Minute},
		{"a day", 5 * time.Hour, 2 * day, day},
		{"a pause of more than a day stays", 2 * day, 20 * day, 2 * day},
		{"the longest pause", year, 1<<63 - 1, year},
		{"no pause stays none", 0, time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := asyncflow.RetryPolicy{MaxAttempts: 2,
				Interval: asyncflow.Seconds(c.pause.Seconds(), 0)}
			got, again := policy.Next(asyncflow.Failure{Attempt: 1, RetryAfter: c.retryAfter})
			require.True(t, again)
			require.Equal(t, c.want, got)
		})
	}
}

// A worker may lengthen the policy's pause, but neither shorten it nor lengthen it beyond ten
// times or a day; deciding again gives the same pause.
func TestNextStaysInBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := asyncflow.RetryPolicy{MaxAttempts: unlimited,
			Interval: intervals().Draw(t, "interval")}
		f := failures().Draw(t, "failure")
		pause := policy.Interval.Pause(f)
		got, again := policy.Next(f)
		require.True(t, again)
		require.GreaterOrEqual(t, got, pause)
		require.GreaterOrEqual(t, got, min(f.RetryAfter, 10*pause, 24*time.Hour))
		require.LessOrEqual(t, got, max(pause, f.RetryAfter))
		require.LessOrEqual(t, got, max(pause, min(10*pause, 24*time.Hour)))
		require.LessOrEqual(t, got, year)
		twice, _ := policy.Next(f)
		require.Equal(t, got, twice)
	})
}

func TestOverride(t *testing.T) {
	t.Parallel()
	own := asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(60)}
	for name, c := range map[string]struct{ over, want asyncflow.RetryPolicy }{
		"nothing": {asyncflow.RetryPolicy{}, own},
		"attempts": {asyncflow.RetryPolicy{MaxAttempts: 9},
			asyncflow.RetryPolicy{MaxAttempts: 9, Interval: asyncflow.Seconds(60)}},
		"interval": {asyncflow.RetryPolicy{Interval: asyncflow.Seconds(-1)},
			asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(-1)}},
		"text": {asyncflow.RetryPolicy{Interval: asyncflow.Rule("poly")},
			asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Rule("poly")}},
		"both": {asyncflow.RetryPolicy{MaxAttempts: 1, Interval: asyncflow.Seconds(1, 2)},
			asyncflow.RetryPolicy{MaxAttempts: 1, Interval: asyncflow.Seconds(1, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, own.Override(c.over), name)
			require.Equal(t, asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(60)},
				own, name)
		})
	}
}

func TestDefaultRetry(t *testing.T) {
	t.Parallel()
	var total time.Duration
	for attempt := 1; ; attempt++ {
		pause, again := asyncflow.DefaultRetry.Next(asyncflow.Failure{Attempt: attempt})
		if total += pause; !again {
			require.Equal(t, 20, attempt)
			break
		}
	}
	require.InDelta(t, 8, total.Hours(), 0.5, "about 8 hours, by its documentation")
}

// DefaultRetry < type < stage < task, for each field.
func TestPolicyByLevel(t *testing.T) {
	t.Parallel()
	type policy = asyncflow.RetryPolicy
	n, rule := asyncflow.Seconds, asyncflow.Rule
	for name, c := range map[string]struct {
		ofType, ofStage policy
		ofTask          *policy
		attempts        int
		pause           float64 // after the third attempt
	}{
		"nothing set": {attempts: 20, pause: 4},
		"type": {ofType: policy{MaxAttempts: 9, Interval: n(-60)}, attempts: 9,
			pause: 60},
		"type's attempts": {ofType: policy{MaxAttempts: 9}, attempts: 9, pause: 4},
		"type's poly": {ofType: policy{Interval: rule("poly")},
			ofStage: policy{MaxAttempts: 5}, attempts: 5, pause: 31},
		"stage over type": {ofType: policy{MaxAttempts: 9, Interval: n(-60)},
			ofStage: policy{MaxAttempts: 8, Interval: rule("10 * attempt")}, attempts: 8,
			pause: 30},
		"stage's numbers, type's text": {ofType: policy{Interval: rule("poly")},
			ofStage: policy{Interval: n(7, 8)}, attempts: 20, pause: 8},
		"task over all": {ofType: policy{Interval: rule("poly")},
			ofStage: policy{MaxAttempts: 5, Interval: n(7, 8)},
			ofTask:  &policy{MaxAttempts: 4, Interval: rule("9")}, attempts: 4, pause: 9},
		"task's interval": {ofStage: policy{MaxAttempts: 5, Interval: rule("poly")},
			ofTask: &policy{Interval: n(-3)}, attempts: 5, pause: 3},
		"task's attempts, stage's text": {ofStage: policy{MaxAttempts: 5, Interval: rule("poly")},
			ofTask: &policy{MaxAttempts: 7}, attempts: 7, pause: 31},
		"task sets nothing": {ofType: policy{MaxAttempts: 9}, ofTask: &policy{}, attempts: 9,
			pause: 4},
	} {
		t.Run(name, func(t *testing.T) {
			tt := asyncflow.TaskType{Name: "a",
				Stages: []asyncflow.Stage{{Name: "only", Retry: c.ofStage}},
				Retry:  c.ofType}.WithDefaults()
			require.NoError(t, tt.Validate(), name)
			require.Equal(t, c.ofType, tt.Retry, "%s: the type's own stays as it is", name)
			options := asyncflow.Options{Retry: c.ofTask}
			require.Equal(t, c.attempts, tt.MaxAttempts("only", options), name)
			v := asyncflow.Decide(tt, asyncflow.Lease{Stage: "only", Attempt: 3, Options: options},
				asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}, now)
			least, most := seconds(c.pause), seconds(c.pause)
			if c.pause == 31 { // poly: with jitter
				most += 3 * 30 * time.Second
			}
			require.GreaterOrEqual(t, v.OrderTime.Sub(now), least, name)
			require.LessOrEqual(t, v.OrderTime.Sub(now), most, name)
		})
	}
}

// The jitter of an attempt is the same each time, differs from attempt to attempt
// and from task to task, and is spread evenly.
func TestJitter(t *testing.T) {
	t.Parallel()
	var tenths [10]int
	seen := map[float64]bool{}
	for task := range int64(1000) {
		id := asyncflow.NewTaskID("a", 1, task)
		for seq := range 10 {
			n := asyncflow.RandOf(id.Number, seq)
			require.True(t, 0 <= n && n < 1)
			require.Equal(t, n, asyncflow.RandOf(id.Number, seq))
			seen[n] = true
			tenths[int(n*10)]++
		}
	}
	require.Len(t, seen, 10_000)
	for _, n := range tenths {
		require.InDelta(t, 1000, n, 150)
	}
	// The first numbers of splitmix64.c with the seed 0, at its first and second step.
	require.InDelta(t, float64(uint64(0xe220a8397b1dcdaf)>>11)/(1<<53), asyncflow.RandOf(0, 1), 0)
	require.InDelta(t, float64(uint64(0x6e789e6aa1b965f4)>>11)/(1<<53), asyncflow.RandOf(0, 2), 0)
}
