package asyncflow_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	_ "github.com/asyncflow/asyncflow/internal/expression" // reads expressions
)

// intervals draws every kind of valid interval.
func intervals() *rapid.Generator[asyncflow.Interval] {
	one := rapid.OneOf(
		rapid.Float64Range(0.001, asyncflow.MaxInterval),
		rapid.Float64Range(-asyncflow.MaxInterval, -0.001),
	)
	return rapid.OneOf(
		rapid.Map(one, func(n float64) asyncflow.Interval { return asyncflow.Seconds(n) }),
		rapid.Map(rapid.SliceOfN(rapid.Float64Range(0, asyncflow.MaxInterval), 2, 100),
			func(list []float64) asyncflow.Interval { return asyncflow.Seconds(list...) }),
		rapid.Just(asyncflow.Rule(asyncflow.Poly)),
		rapid.Map(expressions(4), asyncflow.Rule),
	)
}

// expressions draws valid expressions; many of them give no number of 0 or more.
func expressions(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		if depth == 0 {
			return rapid.OneOf(rapid.SampledFrom([]string{"attempt", "status", "rand", "0", "1e300",
				"-1"}),
				rapid.Map(rapid.IntRange(0, 1e6), strconv.Itoa)).Draw(t, "leaf")
		}
		below := func() string {
			return expressions(rapid.IntRange(0, depth-1).Draw(t, "depth")).Draw(t, "part")
		}
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			return fmt.Sprintf("(%s %s %s)", below(),
				rapid.SampledFrom([]string{"+", "-", "*", "/", "%", "**"}).Draw(t, "operator"),
				below())
		case 1:
			return fmt.Sprintf("(%s %s %s ? %s : %s)", below(),
				rapid.SampledFrom([]string{"<", ">=", "==", "!="}).Draw(t, "operator"), below(),
				below(),
				below())
		case 2:
			return fmt.Sprintf("(error contains 'x' or status in [429, 503] ? %s : %s)", below(),
				below())
		default:
			return fmt.Sprintf("%s(%s)", rapid.SampledFrom([]string{"abs", "ceil", "floor", "round",
				"min",
				"max"}).Draw(t, "function"), below())
		}
	}).Filter(func(text string) bool { return len(text) <= asyncflow.MaxExpression })
}

// failures draws failed attempts of every kind.
func failures() *rapid.Generator[asyncflow.Failure] {
	return rapid.Custom(func(t *rapid.T) asyncflow.Failure {
		return asyncflow.Failure{
			Attempt:    attempts.Draw(t, "attempt"),
			Status:     rapid.IntRange(0, 599).Draw(t, "status"),
			Error:      rapid.String().Draw(t, "error"),
			RetryAfter: time.Duration(rapid.Int64().Draw(t, "retry_after")),
			Rand: rapid.Float64Range(0, 1).Filter(func(n float64) bool { return n < 1 }).Draw(t,
				"rand"),
		}
	})
}

func TestIntervalRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { requireRoundTrip(t, intervals().Draw(t, "interval")) })
}

func TestIntervalJSON(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]asyncflow.Interval{
		`30`:             asyncflow.Seconds(30),
		`-2.5`:           asyncflow.Seconds(-2.5),
		`1e3`:            asyncflow.Seconds(1000),
		`[1,10,25,5]`:    asyncflow.Seconds(1, 10, 25, 5),
		` [ 0.5 , 1 ]  `: asyncflow.Seconds(0.5, 1),
		`"poly"`:         asyncflow.Rule(asyncflow.Poly),
		`"2 * attempt"`:  asyncflow.Rule("2 * attempt"),
		`"\u003c"`:       asyncflow.Rule("<"), // to be refused by the check
	} {
		t.Run(doc, func(t *testing.T) {
			got, err := decode[asyncflow.Interval](doc)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	list, err := decode[asyncflow.Interval](`[7]`)
	require.NoError(t, err)
	for want, interval := range map[string]asyncflow.Interval{
		`30`:     asyncflow.Seconds(30), // one number is no list
		`[1,2]`:  asyncflow.Seconds(1, 2),
		`"poly"`: asyncflow.Rule("poly"),
		`[7]`:    list, // not 7, which doubles up to it
		`null`:   {},

		`"attempt < 3 ? 1 : 2 // <>&"`: asyncflow.Rule("attempt < 3 ? 1 : 2 // <>&"), // readable
	} {
		t.Run(want, func(t *testing.T) {
			doc, err := interval.MarshalJSON()
			require.NoError(t, err)
			require.Equal(t, want, string(doc))
			require.Equal(t, strings.Trim(want, `"`), interval.String())
		})
	}
	doc, err := json.Marshal(asyncflow.RetryPolicy{MaxAttempts: 2})
	require.NoError(t, err)
	require.Equal(t, `{"max_attempts":2}`, string(doc), "no interval is left out")

	for _, doc := range []string{`[]`, `[1,null]`, `null`, `""`, `true`, `{}`, `[[1]]`, `["poly"]`,
		`1e999`} {
		t.Run(doc, func(t *testing.T) {
			_, err := decode[asyncflow.Interval](doc)
			require.EqualError(t, err,
				`must be a number of seconds or a list of them, "poly" or an expression, not `+doc)
		})
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	n, rule := asyncflow.Seconds, asyncflow.Rule
	listOfOne, err := decode[asyncflow.Interval](`[7]`)
	require.NoError(t, err)
	for _, c := range []struct {
		interval asyncflow.Interval
		want     []float64 // after the first attempt, the second, …
	}{
		{asyncflow.Interval{}, []float64{0, 0, 0}},
		{n(10), []float64{1, 2, 4, 8, 10, 10}},
		{n(8), []float64{1, 2, 4, 8, 8}},
		{n(1), []float64{1, 1}},
		{n(0.5), []float64{0.5, 0.5}},
		{n(-10), []float64{10, 10, 10}},
		{n(-0.25), []float64{0.25, 0.25}},
		{n(1, 10, 25, 5, 100), []float64{1, 10, 25, 5, 100, 100, 100}},
		{n(0, 3), []float64{0, 3, 3}},
		{listOfOne, []float64{7, 7, 7}},

		{rule("poly"), []float64{15, 16, 31, 96, 271, 640}},
		{rule("30"), []float64{30, 30, 30}},
		{rule("0"), []float64{0, 0}},
		{rule("attempt"), []float64{1, 2, 3}},
		{rule("min(2 ** attempt, 10)"), []float64{2, 4, 8, 10, 10}},
		{rule("attempt < 3 ? 0.5 : 60"), []float64{0.5, 0.5, 60, 60}},
		{rule("attempt % 2 == 0 ? 9 : 3"), []float64{3, 9, 3, 9}},
		{rule("40000000"), []float64{asyncflow.MaxInterval}},
		{rule("10 ** 300"), []float64{asyncflow.MaxInterval}},

		// No number of seconds: the default's pauses.
		{rule("-1"), []float64{1, 2, 4, 8}},
		{rule("3 - attempt"), []float64{2, 1, 0, 8, 16}},
		{rule("1 / 0"), []float64{1, 2, 4, 8}},
		{rule("-1 / 0"), []float64{1, 2}},
		{rule("0 / 0"), []float64{1, 2, 4, 8}},
		{rule("attempt % 0"), []float64{1, 2}},
		{rule("10 ** 400"), []float64{1, 2}},
		{rule("unheard of"), []float64{1, 2, 4}}, // it can't get here
	} {
		t.Run(fmt.Sprint(c.interval), func(t *testing.T) {
			for i, want := range c.want {
				require.Equal(t, seconds(want), c.interval.Pause(asyncflow.Failure{Attempt: i + 1}),
					"%v after attempt %d", c.interval, i+1)
			}
		})
	}
}

// What an expression knows of the attempt.
func TestExpressionNames(t *testing.T) {
	t.Parallel()
	busy := asyncflow.Failure{Attempt: 4, Status: 429, Error: "429 Too Many Requests: slow down",
		Rand: 0.25, RetryAfter: time.Hour}
	lost := asyncflow.Failure{Attempt: 1, Error: "the lease ran out"}
	for text, want := range map[string][2]float64{
		"status": {429, 0},
		"rand":   {0.25, 0},
		"status == 429 ? 60 : min(2 ** attempt, 3600)": {60, 2},
		"status in [429, 503] ? 7 : 8":                 {7, 8},
		"status == 0 ? 7 : 8":                          {8, 7},
		"500 <= status < 600 ? 7 : 8":                  {8, 8},
		"error contains 'slow' ? 7 : 8":                {7, 8},
		"error startsWith 'the ' ? 7 : 8":              {8, 7},
		"attempt * (1 + rand)":                         {5, 1},
		"ceil(rand) + floor(rand) + round(rand)":       {1, 0},
		"abs(rand - 1) * 100":                          {75, 100},
		"not (error endsWith 'out') and true ? 7 : 8":  {7, 8},
	} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, seconds(want[0]), asyncflow.Rule(text).Pause(busy), text)
			require.Equal(t, seconds(want[1]), asyncflow.Rule(text).Pause(lost), text)
		})
	}
}

// k⁴ + 15 + rand·30·(k+1) seconds, a year at most.
func TestPausePoly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		attempt    int
		rand, want float64
	}{
		{1, 0, 15}, {1, 0.5, 30}, {2, 0.5, 46}, {5, 0.25, 308.5}, {20, 0, 130336},
		{75, 0.5, 29987716},
		{76, 0, asyncflow.MaxInterval}, {99, 0.9, asyncflow.MaxInterval},
	} {
		t.Run(fmt.Sprintf("attempt %d, random %v", c.attempt, c.rand), func(t *testing.T) {
			got := asyncflow.Rule(asyncflow.Poly).Pause(asyncflow.Failure{Attempt: c.attempt,
				Rand: c.rand})
			require.Equal(t, seconds(c.want), got, "attempt %d", c.attempt)
		})
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
		require.Equal(t, seconds(float64(want)),
			asyncflow.Seconds(float64(most)).Pause(asyncflow.Failure{Attempt: attempt}))
	})
}

func TestPauseIsConstant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, asyncflow.MaxInterval).Draw(t, "n")
		require.Equal(t, seconds(float64(n)),
			asyncflow.Seconds(float64(-n)).Pause(asyncflow.Failure{Attempt: attempts.Draw(t,
				"attempt")}))
	})
}

func TestPauseFollowsTheList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.IntRange(0, asyncflow.MaxInterval), 2, 100).Draw(t, "list")
		attempt := attempts.Draw(t, "attempt")
		pauses := make([]float64, len(list))
		for i, n := range list {
			pauses[i] = float64(n)
		}
		want := list[len(list)-1]
		if attempt <= len(list) {
			want = list[attempt-1]
		}
		require.Equal(t, time.Duration(want)*time.Second,
			asyncflow.Seconds(pauses...).Pause(asyncflow.Failure{Attempt: attempt}))
	})
}

// Whatever the rule and the attempt: 0 to a year.
func TestPauseIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		got := intervals().Draw(t, "interval").Pause(failures().Draw(t, "failure"))
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, year)
	})
}

func TestExpressionCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"poly":                   "",
		"30":                     "",
		"attempt < 3 ? 0.5 : 60": "",
		"often":                  "is not a valid expression: unknown name often (1:1)",
		"1 + attemps":            "is not a valid expression: unknown name attemps (1:5)",
		"attempt *":              "is not a valid expression: unexpected token EOF (1:9)",
		"attempt > 3": "is not a valid expression: its value must be a number, " +
			"not bool",
		"error contains 'a\x00'":       "must be UTF-8 without NUL",
		"\xff":                         "must be UTF-8 without NUL",
		strings.Repeat("1", 501):       "is 501 bytes long; the limit is 500",
		"1" + strings.Repeat(" ", 499): "",
	} {
		t.Run(text, func(t *testing.T) {
			policy := asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Rule(text)}
			if want != "" {
				want = "retry.interval " + want
			}
			task := asyncflow.NewTask{Type: "a", Context: json.RawMessage(`1`),
				Options: asyncflow.Options{Retry: &policy}}
			requireRefusal(t, task.Validate(now, 100), asyncflow.CodeInvalid, want)
			tt := pipeline()
			tt.Retry = policy
			requireRefusal(t, tt.Validate(), asyncflow.CodeInvalid, want)
			requireRefusal(t, asyncflow.TaskType{Name: "a",
				Stages: []asyncflow.Stage{{Name: "only"}}, Retry: policy}.WithDefaults().Validate(),
				asyncflow.CodeInvalid, want) // once, though it is in the stage, too
			if tt = pipeline(); want != "" {
				want = "stages[2]." + want
			}
			tt.Stages[2].Retry = policy
			requireRefusal(t, tt.Validate(), asyncflow.CodeInvalid, want)
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		tt := pipeline()
		tt.Retry.Interval = intervals().Draw(t, "interval")
		require.NoError(t, tt.Validate())
	})
}

// Without anything that reads expressions, as in a client program, every text
// passes, and pauses like the default. Not parallel: it takes away what the other tests use.
func TestWithoutExpressions(t *testing.T) {
	registered := asyncflow.SwapExpressions(nil)
	defer asyncflow.SwapExpressions(registered)
	tt := pipeline()
	tt.Retry.Interval = asyncflow.Rule("often")
	require.NoError(t, tt.Validate())
	require.Equal(t, seconds(4), tt.Retry.Interval.Pause(asyncflow.Failure{Attempt: 3}))
	require.Equal(t, seconds(31),
		asyncflow.Rule(asyncflow.Poly).Pause(asyncflow.Failure{Attempt: 3}))
	require.Panics(t, func() { asyncflow.RegisterExpressions(nil) })
	asyncflow.RegisterExpressions(registered)
	require.Panics(t, func() { asyncflow.RegisterExpressions(registered) })
}
