package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/document"
)

// contextOf reads a schedule with a context.
func contextOf(format, context string) (string, error) {
	doc, err := document.Parse(fmt.Appendf(nil, format, context),
		envOf(map[string]string{"A": "<a>"}))
	if err != nil {
		return "", err
	}
	return string(doc.Schedules[0].Context), nil
}

const (
	yamlSchedule = "schedules:\n- name: a\n  type: t\n  every: 1h\n  context: %s\n"
	jsonSchedule = "{\"schedules\":\n[{\"name\":\"a\",\"type\":\"t\",\"every\":\"1h\",\n" +
		"\"context\":%s}]}"
)

// A context holds the values that its author sees.
func TestContextValues(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"18446744073709551616":           "18446744073709551616",
		"123456789012345678901234567890": "123456789012345678901234567890",
		"1e400":                          "1e400", "-1.50E+3": "-1.50E+3", "1.0": "1.0", "-0": "-0",
		"0.1000000000000000055": "0.1000000000000000055",
		"00501":                 `"00501"`, "08": `"08"`, "2026-12-01": `"2026-12-01"`,
		"2026-12-01 10:00:00": `"2026-12-01 10:00:00"`, "12:30:00": `"12:30:00"`,
		"1.2.3":   `"1.2.3"`,
		"!!str 5": `"5"`, `"5"`: `"5"`, "yes": `"yes"`, "True": "true", "~": "",
		"1_000 m":                             `"1_000 m"`,
		"{2026-12-01: 1, 007: 2, b: 3, a: 4}": `{"2026-12-01":1,"007":2,"b":3,"a":4}`,
		"['${A}', '$${A}', <>]":               `["<a>","${A}","<>"]`,
		"{<<: [{a: 1, b: 2}, {b: 3}], a: 4}":  `{"a":4,"b":2}`,
		"[&x {a: 1e400}, *x]":                 `[{"a":1e400},{"a":1e400}]`,
	} {
		t.Run(in, func(t *testing.T) {
			got, err := contextOf(yamlSchedule, in)
			if want == "" {
				require.ErrorContains(t, err, "context is required")
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	for _, in := range []string{"18446744073709551616", "1e400", "1.0", `"\ud83d\ude00\/\u0041"`,
		`{"b":[true,null],"a":"2026-12-01","<<":{}}`, `"\ud800"`, "0.10", `"line\nbreak"`} {
		t.Run(in, func(t *testing.T) {
			got, err := contextOf(jsonSchedule, in)
			require.NoError(t, err)
			require.Equal(t, in, got)
		})
	}
	got, err := contextOf("\ufeff "+jsonSchedule, `["${A}", "\/"]`)
	require.NoError(t, err)
	require.Equal(t, `["<a>","\/"]`, got)
}

// What a document can't say in JSON is refused with its line and with a remedy.
func TestContextProblems(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0x1F": "line 5: schedules[0].context is 0x1F, a number that JSON doesn't have: put it " +
			"in quotes",
		"0o17": "is 0o17", "0b1": "is 0b1", "1_000": "is 1_000", ".5": "is .5", "5.": "is 5.",
		"+5": "is +5", ".inf": "is .inf", ".nan": "is .nan", "00.5": "is 00.5", "-007": "is -007",
		"!!int abc":         "is abc, a number",
		"!!binary aGk=":     "has the tag !!binary, which",
		"!point {x: 1}":     "has the tag !point, which",
		"[a, {b: !set [1]}": "it is not YAML",
		"[a, {b: !set [1]}]": "line 5: schedules[0].context[1].b has the tag !set, " +
			"which is not read here",
		"\n    a: 1\n    b: 2\n    a: 3": "line 8: schedules[0].context.a is there twice, first " +
			"in line 6",
		"{1: 2}": "schedules[0].context.1 is a key that is not a text: " +
			"put it in quotes",
		"{? [x] : 2}": "schedules[0].context.here is a key that is not a text",
		"{<<: 5}":     "schedules[0].context merges 5; << takes a mapping",
		"&a [*a]":     "has the alias *a, which stands inside of what it names",
		strings.Repeat("[", 600) + strings.Repeat("]", 600): "is nested more than 500 deep",
		"[&a " + strings.Repeat("x", 2000) + strings.Repeat(", *a", 1000) +
			"]": "it has aliases that " +
			"stand for too much",
	} {
		t.Run(in, func(t *testing.T) {
			_, err := contextOf(yamlSchedule, in)
			require.ErrorContains(t, err, want, in)
		})
	}
	for in, want := range map[string]string{
		"{\"a\":1,\n\"a\":2}": "line 4: schedules[0].context.a is " +
			"there twice, first in line 3",
		strings.Repeat("[", 600) + strings.Repeat("]", 600): "is nested more than 500 deep",
	} {
		t.Run(in, func(t *testing.T) {
			_, err := contextOf(jsonSchedule, in)
			require.ErrorContains(t, err, want, in)
		})
	}
	_, err := contextOf(jsonSchedule, "[\n01\n\"x\"")
	require.ErrorContains(t, err, "nor is it JSON: line 4: invalid character '1'")
	_, err = document.Parse([]byte("#"+strings.Repeat(" ", 16<<20)), nil)
	require.ErrorContains(t, err, "the limit is 16777216")
}

// One reading finds the problems of all entries, in their order, each with its line.
func TestAllProblems(t *testing.T) {
	t.Parallel()
	_, err := document.Parse([]byte(`types:
- name: a
  stages: [{name: x}]
- name: B
  stages:
  - {name: y, timeout: 9h}
schedules:
- {name: s, type: a, every: 1h, context: {n: 0x1F}}
- {name: t, type: a, context: 1}
tasks: 5
`), nil)
	require.EqualError(t, document.InFile("flow.yaml", err),
		"5 things are wrong with the document:\n"+
			"  flow.yaml:4: types[1].name must start with a lower-case letter\n"+
			"  flow.yaml:6: types[1].stages[0].timeout is 9h; it must be 100ms to 1h\n"+
			"  flow.yaml:8: schedules[0].context.n is 0x1F, a number that JSON doesn't have: put "+
			"it in quotes if it is a text, or write it in decimals\n"+
			"  flow.yaml:9: schedules[1].cron is required, or every\n"+
			"  flow.yaml:10: tasks is not known here; the keys are endpoints, schedules, types")
}
