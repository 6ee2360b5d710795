package asyncflow_test

import (
	"encoding/json"
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

// intervals draws every kind of valid interval.
func intervals() *rapid.Generator[asyncflow.Interval] {
	one := rapid.OneOf(
		rapid.Float64Range(0.001, asyncflow.MaxInterval),
		rapid.Float64Range(-asyncflow.MaxInterval, -0.001),
	)
	return rapid.OneOf(
		rapid.Map(one, func(n float64) asyncflow.Interval { return asyncflow.Interval{n} }),
		rapid.Map(rapid.SliceOfN(rapid.Float64Range(0, asyncflow.MaxInterval), 2, 100),
			func(list []float64) asyncflow.Interval { return list }),
	)
}

func TestIntervalRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { requireRoundTrip(t, intervals().Draw(t, "interval")) })
}

func TestIntervalJSON(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]asyncflow.Interval{
		`30`:             {30},
		`-2.5`:           {-2.5},
		`1e3`:            {1000},
		`[1,10,25,5]`:    {1, 10, 25, 5},
		`[7]`:            {7, 7}, // always 7, not doubling up to it
		` [ 0.5 , 1 ]  `: {0.5, 1},
	} {
		got, err := decode[asyncflow.Interval](doc)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	doc, err := json.Marshal(asyncflow.Interval{30})
	require.NoError(t, err)
	require.Equal(t, `30`, string(doc), "one number is no list")

	for _, doc := range []string{`[]`, `null`, `"30"`, `"30s"`, `true`, `{}`, `[[1]]`, `["1"]`, `1e999`} {
		_, err := decode[asyncflow.Interval](doc)
		require.EqualError(t, err, "must be a number of seconds or a list of them, not "+doc)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		interval asyncflow.Interval
		want     []float64 // after the first attempt, the second, …
	}{
		{nil, []float64{0, 0, 0}},
		{asyncflow.Interval{10}, []float64{1, 2, 4, 8, 10, 10}},
		{asyncflow.Interval{8}, []float64{1, 2, 4, 8, 8}},
		{asyncflow.Interval{1}, []float64{1, 1}},
		{asyncflow.Interval{0.5}, []float64{0.5, 0.5}},
		{asyncflow.Interval{-10}, []float64{10, 10, 10}},
		{asyncflow.Interval{-0.25}, []float64{0.25, 0.25}},
		{asyncflow.Interval{1, 10, 25, 5, 100}, []float64{1, 10, 25, 5, 100, 100, 100}},
		{asyncflow.Interval{0, 3}, []float64{0, 3, 3}},
	} {
		for i, want := range c.want {
			require.Equal(t, seconds(want), c.interval.Pause(i+1), "%v after attempt %d", c.interval, i+1)
		}
	}
}

// n > 0: 1, 2, 4, … seconds up to n, even after a hundred attempts.
func TestPauseDoubles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, asyncflow.MaxInterval).Draw(t, "n")
		attempt := attempts.Draw(t, "attempt")
		want := 1
		for range attempt - 1 {
			want = min(2*want, most)
		}
		require.Equal(t, seconds(float64(want)), asyncflow.Interval{float64(most)}.Pause(attempt))
	})
}

func TestPauseIsConstant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, asyncflow.MaxInterval).Draw(t, "n")
		require.Equal(t, seconds(float64(n)), asyncflow.Interval{float64(-n)}.Pause(attempts.Draw(t, "attempt")))
	})
}

func TestPauseFollowsTheList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.IntRange(0, asyncflow.MaxInterval), 2, 100).Draw(t, "list")
		attempt := attempts.Draw(t, "attempt")
		interval := make(asyncflow.Interval, len(list))
		for i, n := range list {
			interval[i] = float64(n)
		}
		want := list[len(list)-1]
		if attempt <= len(list) {
			want = list[attempt-1]
		}
		require.Equal(t, time.Duration(want)*time.Second, interval.Pause(attempt))
	})
}

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
			pause, again = policy.Next(made+1, rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "retry_after"))
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
		policy := asyncflow.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Interval{c.pause.Seconds(), 0}}
		got, again := policy.Next(1, c.retryAfter)
		require.True(t, again, c.name)
		require.Equal(t, c.want, got, c.name)
	}
}

// A worker may stretch the pause, but neither shorten it nor stretch it beyond
// ten times or a day.
func TestNextStaysInBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := asyncflow.RetryPolicy{MaxAttempts: unlimited, Interval: intervals().Draw(t, "interval")}
		attempt := attempts.Draw(t, "attempt")
		asked := time.Duration(rapid.Int64().Draw(t, "retry_after"))
		pause, _ := policy.Next(attempt, 0)
		got, again := policy.Next(attempt, asked)
		require.True(t, again)
		require.GreaterOrEqual(t, got, pause)
		require.LessOrEqual(t, got, max(pause, asked))
		require.LessOrEqual(t, got, max(pause, min(10*pause, 24*time.Hour)))
	})
}

func TestOverride(t *testing.T) {
	t.Parallel()
	own := asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Interval{60}}
	for name, c := range map[string]struct{ over, want asyncflow.RetryPolicy }{
		"nothing":  {asyncflow.RetryPolicy{}, own},
		"attempts": {asyncflow.RetryPolicy{MaxAttempts: 9}, asyncflow.RetryPolicy{MaxAttempts: 9, Interval: asyncflow.Interval{60}}},
		"interval": {asyncflow.RetryPolicy{Interval: asyncflow.Interval{-1}}, asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Interval{-1}}},
		"both":     {asyncflow.RetryPolicy{MaxAttempts: 1, Interval: asyncflow.Interval{1, 2}}, asyncflow.RetryPolicy{MaxAttempts: 1, Interval: asyncflow.Interval{1, 2}}},
	} {
		require.Equal(t, c.want, own.Override(c.over), name)
		require.Equal(t, asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Interval{60}}, own, name)
	}
}

func TestDefaultRetry(t *testing.T) {
	t.Parallel()
	var total time.Duration
	for attempt := 1; ; attempt++ {
		pause, again := asyncflow.DefaultRetry.Next(attempt, 0)
		if total += pause; !again {
			require.Equal(t, 20, attempt)
			break
		}
	}
	require.InDelta(t, 8, total.Hours(), 0.5, "about 8 hours, by its documentation")
}
