package asyncflow_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestNewTaskValidate(t *testing.T) {
	const (
		most = 1000
		long = "is 8761h0m0s; it must be 0s to 8760h0m0s (a year)"
	)
	with := func(change func(*asyncflow.NewTask)) asyncflow.NewTask {
		task := asyncflow.NewTask{Type: "thumbnails", Context: json.RawMessage(`{"image":"a.jpg"}`)}
		change(&task)
		return task
	}
	context := func(doc string) asyncflow.NewTask {
		return with(func(n *asyncflow.NewTask) { n.Context = json.RawMessage(doc) })
	}
	named := func(name string) asyncflow.NewTask {
		return with(func(n *asyncflow.NewTask) {
			n.Type = name
		})
	}
	delay := func(d time.Duration) asyncflow.NewTask {
		return with(func(n *asyncflow.NewTask) { n.Delay = asyncflow.NewDuration(d) })
	}
	runAt := func(at time.Time) asyncflow.NewTask {
		return with(func(n *asyncflow.NewTask) {
			n.RunAt = at
		})
	}
	priority := func(p ...int) asyncflow.NewTask {
		return with(func(n *asyncflow.NewTask) { n.Options.Priority = p })
	}
	retry := func(p asyncflow.RetryPolicy) asyncflow.NewTask {
		return with(func(n *asyncflow.NewTask) { n.Options.Retry = &p })
	}

	parallel(t, map[string]struct {
		task asyncflow.NewTask
		want string // "": valid
	}{
		"valid":   {with(func(*asyncflow.NewTask) {}), ""},
		"no type": {named(""), "type is required"},
		"long type": {named(strings.Repeat("a", 41)),
			"type is 41 characters long; the limit is 40"},
		"type with a dot": {named("a.b"), "type may hold lower-case letters, digits, - and _ only"},

		"no context":       {context(""), "context is required"},
		"largest context":  {context(`"` + strings.Repeat("x", most-2) + `"`), ""},
		"invalid UTF-8":    {context("\"\xff\""), "context is not valid UTF-8"},
		"half a character": {context("\"\xc3\""), "context is not valid UTF-8"},
		"a surrogate":      {context("\"\xed\xa0\x80\""), "context is not valid UTF-8"},
		"a scalar":         {context(`1e400`), ""},
		"null":             {context(`null`), ""},
		"deepest":          {context(nested(128)), ""},
		"too deep":         {context(nested(129)), "context is nested more than 128 deep"},
		"deep and broken": {context(strings.Repeat("[", 900)),
			"context is nested more than 128 deep"},

		"priority": {priority(0, 31536000), ""},
		"priority negative": {priority(-1),
			"priority is -1; it must be 0 to 31536000 seconds (a year)"},
		"priority over": {priority(1, 31536001),
			"priority is 31536001; it must be 0 to 31536000 seconds (a year)"},
		"50 priorities": {priority(make([]int, 50)...), ""},
		"51 priorities": {priority(make([]int, 51)...), "priority has 51 entries; the limit is 50"},
		"retry": {retry(asyncflow.RetryPolicy{MaxAttempts: 100,
			Interval: asyncflow.Seconds(-1)}), ""},
		"retry interval only": {retry(asyncflow.RetryPolicy{Interval: asyncflow.Seconds(1, 2)}),
			""},
		"retry attempts": {retry(asyncflow.RetryPolicy{MaxAttempts: 101}),
			"retry.max_attempts is 101; it must be 1 to 100"},
		"retry interval": {retry(asyncflow.RetryPolicy{Interval: asyncflow.Seconds(0)}),
			"retry.interval must not be 0: n > 0 doubles up to n, n < 0 is always |n|"},

		"delay":        {delay(time.Hour), ""},
		"delay a year": {delay(year), ""},
		"delay more":   {delay(year + time.Hour), "delay " + long},
		"delay negative": {delay(-time.Second),
			"delay is -1s; it must be 0s to 8760h0m0s (a year)"},
		"run_at":        {runAt(now.Add(time.Hour)), ""},
		"run_at past":   {runAt(now.Add(-10 * year)), ""},
		"run_at a year": {runAt(now.Add(year)), ""},
		"run_at more": {runAt(now.Add(year + 1)),
			"run_at is more than 8760h0m0s (a year) ahead"},
		"delay + run_at": {with(func(n *asyncflow.NewTask) {
			n.Delay,
				n.RunAt = asyncflow.NewDuration(1), now
		}),
			"delay and run_at exclude each other"},
		"several at once": {asyncflow.NewTask{Delay: asyncflow.NewDuration(-1)},
			"type is required; context is required; delay is -1ns; it must be 0s to 8760h0m0s (a " +
				"year)"},
	}, func(t *testing.T, c struct {
		task asyncflow.NewTask
		want string
	}) {
		requireRefusal(t, c.task.Validate(now, most), asyncflow.CodeInvalid, c.want)
	})
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// A context over the limit gets its own code, even beside other problems.
func TestNewTaskTooLarge(t *testing.T) {
	t.Parallel()
	task := asyncflow.NewTask{Type: "a",
		Context: json.RawMessage(`"` + strings.Repeat("x", 9) + `"`)}
	require.NoError(t, task.Validate(now, 11))
	requireRefusal(t, task.Validate(now, 10), asyncflow.CodeTooLarge,
		"context is 11 bytes; the limit is 10")
	task.Type = ""
	requireRefusal(t, task.Validate(now, 10), asyncflow.CodeTooLarge,
		"type is required; context is 11 bytes; the limit is 10")

	task = asyncflow.NewTask{Type: "a", Context: json.RawMessage(strings.Repeat("[", 10<<20))}
	requireRefusal(t, task.Validate(now, 1<<20), asyncflow.CodeTooLarge,
		"context is 10485760 bytes; the limit is 1048576")
}

func TestCheckJSONSyntax(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{"spaces": "  \n", "not JSON": `{"a":}`,
		"cut off": `{"a":1`, "two documents": `{} {}`,
		"NaN": `NaN`, "raw NUL": "\"\x00\"", "byte-order mark": "\uFEFF{}", "an open string": `"a`,
		"an escape at the end": `"a\`} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, asyncflow.CheckJSON([]byte(doc)), "is not valid JSON", name)
		})
	}
}

func TestCheckJSONDepth(t *testing.T) {
	t.Parallel()
	for doc, ok := range map[string]bool{
		nested(128): true,
		nested(129): false,
		strings.Repeat("[{\"a\":", 64) + "1" + strings.Repeat("}]", 64):  true,
		strings.Repeat("[{\"a\":", 64) + "[]" + strings.Repeat("}]", 64): false,
		"[" + strings.Repeat("[],", 500) + "[]]":                         true, // wide, not deep
		`"` + strings.Repeat("[", 500) + `"`:                             true, // within a string
		// behind an escaped quotation mark
		`["\"` + strings.Repeat("[", 500) + `"]`: true,
		`["\\",` + nested(128) + `]`:             false,
		`{"a\\\"[[":` + nested(127) + `}`:        true,
	} {
		t.Run(doc, func(t *testing.T) {
			err := asyncflow.CheckJSON([]byte(doc))
			require.Equal(t, ok, err == nil, "%.60s: %v", doc, err)
		})
	}
	require.EqualError(t, asyncflow.CheckJSON([]byte(strings.Repeat("{\"a\":", 1<<20))),
		"is nested more than 128 deep")
}

// Any JSON that Go writes may be stored, if it isn't nested too deep.
func TestCheckJSONProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		levels := rapid.IntRange(0, 200).Draw(t, "levels")
		var v any = rapid.String().Draw(t, "text")
		for range levels {
			if key := rapid.String().Draw(t, "key"); rapid.Bool().Draw(t, "list") {
				v = []any{key, v}
			} else {
				v = map[string]any{key: v}
			}
		}
		doc, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, levels <= asyncflow.MaxContextDepth, asyncflow.CheckJSON(doc) == nil)
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for doc, o := range map[string]asyncflow.Options{
		`{}`:                           {},
		`{"priority":5}`:               {Priority: asyncflow.Priority{5}},
		`{"retry":{"max_attempts":2}}`: {Retry: &asyncflow.RetryPolicy{MaxAttempts: 2}},
		`{"priority":[1,2],"retry":{"max_attempts":2,"interval":[1,2.5]}}`: {
			Priority: asyncflow.Priority{1, 2},
			Retry:    &asyncflow.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Seconds(1, 2.5)}},
	} {
		t.Run(doc, func(t *testing.T) {
			text, err := json.Marshal(o)
			require.NoError(t, err)
			require.Equal(t, doc, string(text))
			requireRoundTrip(t, o)
			require.Equal(t, doc == `{}`, o.IsZero())
		})
	}
}

// A string ends at the first quote that isn't escaped.
func TestStringEnd(t *testing.T) {
	for _, text := range []string{`""`, `"a"`, `"\""`, `"\\"`, `"\\\""`, `"a\\\\"`, `"\"\\\"\n"`} {
		t.Run(text, func(t *testing.T) {
			require.True(t, json.Valid([]byte(text)))
			require.Equal(t, 1+len(text), asyncflow.StringEnd([]byte("["+text+`,"b"]`), 1))
		})
	}
	for _, text := range []string{`"`, `"a`, `"\"`, `"\\\"`} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, len(text), asyncflow.StringEnd([]byte(text), 0))
		})
	}
}

// A string of escapes is read once. To look for its end again after each of them would take hours.
func TestStringOfEscapes(t *testing.T) {
	t.Parallel()
	doc := []byte(`["` + strings.Repeat(`\n`, 16<<20) + `"]`)
	require.Equal(t, 1, asyncflow.Depth(doc))
}
