package document_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/document"
)

func envOf(pairs map[string]string) document.Lookup {
	return func(name string) (string, bool) { v, ok := pairs[name]; return v, ok }
}

const goodDocument = `
types:
  - name: thumbnails
    schedule_limit: ${LIMIT}
    schedule_interval: 1s
    stages:
      - name: inspect
        timeout: 10s
        retry: {max_attempts: 5, interval: 30}
      - {name: resize, max_processing_time: 5m, priority: 60, retry: {interval: [1, 2.5]}}
endpoints:
  - {type: thumbnails, stage: inspect, url: "${URL}/inspect", secret: "${SECRET}"}
  - {type: other, stage: first, url: "https://x.example.com/$${literal}"}
`

func TestParseDocument(t *testing.T) {
	t.Parallel()
	doc, err := document.Parse([]byte(goodDocument),
		envOf(map[string]string{"URL": "http://w:1", "SECRET": "", "LIMIT": "7"}))
	require.NoError(t, err)
	require.Equal(t, []document.Type{{Name: "thumbnails", TaskTypeSpec: client.TaskTypeSpec{
		ScheduleLimit: 7, ScheduleInterval: client.NewDuration(time.Second),
		Stages: []client.Stage{
			{Name: "inspect", Timeout: client.NewDuration(10 * time.Second),
				Retry: client.RetryPolicy{MaxAttempts: 5, Interval: client.Seconds(30)}},
			{Name: "resize", MaxProcessingTime: client.NewDuration(5 * time.Minute), Priority: 60,
				Retry: client.RetryPolicy{Interval: client.Seconds(1, 2.5)}},
		}}}}, doc.Types)
	require.Equal(t, []client.NewEndpoint{
		{Type: "thumbnails", Stage: "inspect", URL: "http://w:1/inspect"},
		{Type: "other", Stage: "first", URL: "https://x.example.com/${literal}"},
	}, doc.Endpoints)
}

func TestDocumentProblems(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		doc  string
		want []string
	}{
		"empty":         {"# nothing", []string{"it is empty"}},
		"not YAML":      {"types: [", []string{"it is not YAML"}},
		"two documents": {"types: []\n---\ntypes: []", []string{"it goes on after its end"}},
		"a list":        {"[1]", []string{"must be a mapping of keys to values, not a list"}},
		"key twice": {"types: []\ntypes: []",
			[]string{`line 2: types is there twice, first in line 1`}},
		"unknown keys": {"tasks: []\ntypes: [{name: a, stages: [{name: x, time_out: 1s}], Name: " +
			"b}]\nendpoints: [{uri: x}]", []string{
			"tasks is not known here; the keys are endpoints, schedules, types",
			"types[0].Name is not known here; the keys are end_by, flow, max_deliver_bytes, " +
				"max_in_flight, max_steps, name, on_final, rate, retention, retry, roll_age, roll_rows, " +
				"schedule_interval, schedule_limit, searchable, stage_mapping, stages, start_by",
			"types[0].stages[0].time_out is not known here; the keys are deliver, fan_out,",
			"endpoints[0].uri is not known here; the keys are allow_duplicate, auth, batch, " +
				"headers, listen, max_in_flight, rate, secret, secret_kind, stage, tls, type, " +
				"url, weight",
		}},
		"no mapping": {"types: [{name: a, stages: [{name: x}], stage_mapping: [y]}]",
			[]string{"types[0].stage_mapping must be a mapping of keys to values, not a list"}},
		"mapping values": {"types: [{name: a, stages: [{name: x}], stage_mapping: {y: 1, x: z}}]",
			[]string{"types[0].stage_mapping.y must be a string, not 1"}},
		"wrong kinds": {"types: [{name: 5, stages: {}, schedule_limit: many, schedule_interval: " +
			"5}, 7]",
			[]string{
				"types[0].name must be a string, not 5",
				"types[0].stages must be a list, not a mapping",
				`types[0].schedule_limit must be a whole number, not "many"`,
				`types[0].schedule_interval must be a duration such as "30s" or "7d", not "5"`,
				"types[1] must be a mapping of keys to values, not 7",
			}},
		"rules": {"types: [{name: A, stages: []}, {name: b, stages: [{name: x, timeout: 9h, " +
			"priority: -1}, {name: x, retry: {max_attempts: 101, interval: 0}}]}, {name: b, " +
			"stages: [{name: y}]}]",
			[]string{
				"types[0].name must start with a lower-case letter",
				"types[0].stages has 0 entries; it must have 1 to 50",
				"types[1].stages[0].timeout is 9h; it must be 100ms to 1h",
				"types[1].stages[0].priority is -1",
				`types[1].stages[1].name is "x", which an earlier stage has`,
				"types[1].stages[1].retry.max_attempts is 101; it must be 1 to 100",
				"types[1].stages[1].retry.interval must not be 0",
				`types[2].name is "b", which an earlier type has`,
			}},
		"intervals": {`types: [{name: a, retry: {interval: often}, stages: [{name: x, retry: ` +
			`{interval: 2 ** attemps}}, {name: y, retry: {interval: {}}}]}]`, []string{
			`types[0].stages[1].retry.interval must be a number of seconds or a list of them, "poly" ` +
				`or an expression, not {}`,
		}},
		"expressions": {`types: [{name: a, retry: {interval: often}, stages: [{name: x, retry: ` +
			`{interval: 2 ** attemps}}, {name: y}]}]`, []string{
			"types[0].retry.interval is not a valid expression: unknown name often (1:1)",
			"types[0].stages[0].retry.interval is not a valid expression: unknown name attemps " +
				"(1:6)",
		}},
		"endpoints": {"types: [{name: a, stages: [{name: x}]}]\nendpoints: [{type: a, stage: y, " +
			"url: https://h/}, {stage: x}, {type: a, stage: x, url: ftp://h}, {type: b, stage: " +
			"x, url: https://h/}, {type: b, stage: x, url: https://h/}]", []string{
			`endpoints[0].stage is "y"; the stages of a are x`,
			"endpoints[1].type is required",
			"endpoints[1].url is required",
			"endpoints[2].url must be an absolute https URL",
			"endpoints[4] is the same as an earlier one",
		}},
		"variables": {`endpoints: [{type: "${NO}", stage: "${}", url: "${A", secret: "${NO} ` +
			`${ALSO_NO}"}]`, []string{
			"endpoints[0].type names the environment variable NO, which is not set",
			`endpoints[0].stage has "${}", which is not a reference like ${NAME}`,
			`endpoints[0].url has "${A", which is not a reference`,
			"endpoints[0].secret names the environment variable NO, which is not set, and names " +
				"the environment variable ALSO_NO, which is not set",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := document.Parse([]byte(tc.doc), envOf(map[string]string{"A": "a"}))
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			var all *document.Error
			require.ErrorAs(t, err, &all)
			require.Len(t, all.Fields, len(tc.want), "%v", err)
		})
	}
}

// An interval may be a text, from the environment too.
func TestIntervalTexts(t *testing.T) {
	t.Parallel()
	env := envOf(map[string]string{"RULE": "poly", "TOP": "3600", "NUMBER": "30"})
	for text, want := range map[string]client.Interval{
		"poly":                          client.Rule(client.Poly),
		"min(2 ** attempt, 60)":         client.Rule("min(2 ** attempt, 60)"),
		`"status == 429 ? 60 : 1"`:      client.Rule("status == 429 ? 60 : 1"),
		">-\n  attempt < 3\n  ? 1 : 60": client.Rule("attempt < 3 ? 1 : 60"),
		"${RULE}":                       client.Rule(client.Poly),
		"${NUMBER}":                     client.Seconds(30),
		"'min(2 ** attempt, ${TOP})'":   client.Rule("min(2 ** attempt, 3600)"),
		`"30"`:                          client.Rule("30"),
	} {
		t.Run(text, func(t *testing.T) {
			doc, err := document.Parse([]byte("types:\n- name: a\n  stages: [{name: x}]\n  "+
				"retry:\n    interval: "+strings.ReplaceAll(text, "\n", "\n    ")), env)
			require.NoError(t, err, text)
			require.Equal(t, want, doc.Types[0].Retry.Interval, text)
		})
	}
}

// The limits of a task type are read as the API reads them.
func TestDocumentLimits(t *testing.T) {
	t.Parallel()
	doc, err := document.Parse([]byte(
		`types: [{name: a, stages: [{name: x}], max_in_flight: 5, rate: 10/m, flow: {ordered: true, `+
			`on_failure: block, rate: 2/s}}]`), nil)
	require.NoError(t, err)
	spec := doc.Types[0]
	require.Equal(t, 5, spec.MaxInFlight)
	require.Equal(t, asyncflow.Rate{Count: 10, Per: time.Minute}, spec.Rate)
	require.Equal(t, &asyncflow.Flow{Ordered: true, OnFailure: asyncflow.FlowBlock,
		Limits: asyncflow.Limits{Rate: asyncflow.Rate{Count: 2, Per: time.Second}}}, spec.Flow)
	for text, field := range map[string]string{"rate: 10": "types[0].rate",
		"rate: 0/s": "types[0].rate", "flow: {}": "types[0].flow",
		"flow: {ordered: true, max_in_flight: 3}": "types[0].flow.max_in_flight"} {
		t.Run(text, func(t *testing.T) {
			_, err := document.Parse([]byte(`types: [{name: a, stages: [{name: x}], `+text+`}]`),
				nil)
			require.ErrorContains(t, err, field, text)
		})
	}
}

// A document that would take gigabytes of memory is refused before it is read.
func TestDocumentOfManyValues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin, each, end string
		refused          bool
	}{
		"JSON":        {`{"types":[`, "[],", "0]}", true},
		"numbers":     {`{"types":[`, "0,", "0]}", true},
		"flow style":  {"{types: [", "[],", "0]}", true},
		"block style": {"types:\n", "-\n", "", true},
		"keys":        {"", "a:\n", "", true},
		"a text":      {`{"types":["`, `[],- a: \"`, `"]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := c.begin + strings.Repeat(c.each, 600_000) + c.end
			_, err := document.Parse([]byte(text), nil)
			if c.refused {
				require.ErrorContains(t, err, "values; the limit is 500000")
				return
			}
			require.ErrorContains(t, err, "types[0]")
		})
	}
	_, err := document.Parse([]byte("types:\n"+strings.Repeat("-\n", 3000)), nil)
	require.ErrorContains(t, err, "at least 1000 things are wrong")
}
