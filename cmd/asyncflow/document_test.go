package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

func envOf(pairs map[string]string) lookup {
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
	doc, err := parseDocument([]byte(goodDocument), envOf(map[string]string{"URL": "http://w:1", "SECRET": "", "LIMIT": "7"}))
	require.NoError(t, err)
	require.Equal(t, []typeEntry{{Name: "thumbnails", TaskTypeSpec: client.TaskTypeSpec{
		ScheduleLimit: 7, ScheduleInterval: client.Duration(time.Second),
		Stages: []client.Stage{
			{Name: "inspect", Timeout: client.Duration(10 * time.Second), Retry: client.RetryPolicy{MaxAttempts: 5, Interval: client.Seconds(30)}},
			{Name: "resize", MaxProcessingTime: client.Duration(5 * time.Minute), Priority: 60, Retry: client.RetryPolicy{Interval: client.Seconds(1, 2.5)}},
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
		"key twice":     {"types: []\ntypes: []", []string{`mapping key "types" already defined`}},
		"unknown keys": {"tasks: []\ntypes: [{name: a, stages: [{name: x, time_out: 1s}], Name: b}]\nendpoints: [{uri: x}]", []string{
			"tasks is not known here; the keys are endpoints, schedules, types",
			"types[0].Name is not known here; the keys are flow, max_in_flight, name, rate, retention, retry, roll_age, roll_rows, schedule_interval, schedule_limit, stage_mapping, stages",
			"types[0].stages[0].time_out is not known here",
			"endpoints[0].uri is not known here; the keys are auth, batch, headers, max_in_flight, rate, secret, secret_kind, stage, tls, type, url, weight",
		}},
		"no mapping":     {"types: [{name: a, stages: [{name: x}], stage_mapping: [y]}]", []string{"types[0].stage_mapping must be a mapping of keys to values, not a list"}},
		"mapping values": {"types: [{name: a, stages: [{name: x}], stage_mapping: {y: 1, x: z}}]", []string{"types[0].stage_mapping.y must be a string, not 1"}},
		"wrong kinds": {"types: [{name: 5, stages: {}, schedule_limit: many, schedule_interval: 5}, 7]", []string{
			"types[0].name must be a string, not 5",
			"types[0].stages must be a list, not a mapping",
			`types[0].schedule_limit must be a whole number, not "many"`,
			`types[0].schedule_interval must be a duration such as "30s" or "5m", not "5"`,
			"types[1] must be a mapping of keys to values, not 7",
		}},
		"rules": {"types: [{name: A, stages: []}, {name: b, stages: [{name: x, timeout: 9h, priority: -1}, {name: x, retry: {max_attempts: 101, interval: 0}}]}, {name: b, stages: [{name: y}]}]", []string{
			"types[0].name must start with a lower-case letter",
			"types[0].stages has 0 entries; it must have 1 to 50",
			"types[1].stages[0].timeout is 9h0m0s; it must be 100ms to 1h0m0s",
			"types[1].stages[0].priority is -1",
			`types[1].stages[1].name is "x", which an earlier stage has`,
			"types[1].stages[1].retry.max_attempts is 101; it must be 1 to 100",
			"types[1].stages[1].retry.interval must not be 0",
			`types[2].name is "b", which an earlier type has`,
		}},
		"intervals": {`types: [{name: a, retry: {interval: often}, stages: [{name: x, retry: {interval: 2 ** attemps}}, {name: y, retry: {interval: {}}}]}]`, []string{
			`types[0].stages[1].retry.interval must be a number of seconds or a list of them, "poly" or an expression, not {}`,
		}},
		"expressions": {`types: [{name: a, retry: {interval: often}, stages: [{name: x, retry: {interval: 2 ** attemps}}, {name: y}]}]`, []string{
			"types[0].retry.interval is not a valid expression: unknown name often (1:1)",
			"types[0].stages[0].retry.interval is not a valid expression: unknown name attemps (1:6)",
		}},
		"endpoints": {"types: [{name: a, stages: [{name: x}]}]\nendpoints: [{type: a, stage: y, url: https://h/}, {stage: x}, {type: a, stage: x, url: ftp://h}, {type: b, stage: x, url: https://h/}, {type: b, stage: x, url: https://h/}]", []string{
			`endpoints[0].stage is "y"; the stages of a are x`,
			"endpoints[1].type is required",
			"endpoints[1].url is required",
			"endpoints[2].url must be an absolute https URL",
			"endpoints[4] is the same as an earlier one",
		}},
		"variables": {`endpoints: [{type: "${NO}", stage: "${}", url: "${A", secret: "${NO} ${ALSO_NO}"}]`, []string{
			"endpoints[0].type names the environment variable NO, which is not set",
			`endpoints[0].stage has "${}", which is not a reference like ${NAME}`,
			`endpoints[0].url has "${A", which is not a reference`,
			"endpoints[0].secret names the environment variable NO, which is not set, and names the environment variable ALSO_NO, which is not set",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseDocument([]byte(tc.doc), envOf(map[string]string{"A": "a"}))
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			var all *documentError
			require.ErrorAs(t, err, &all)
			require.Len(t, all.fields, len(tc.want), "%v", err)
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
		doc, err := parseDocument([]byte("types:\n- name: a\n  stages: [{name: x}]\n  retry:\n    interval: "+strings.ReplaceAll(text, "\n", "\n    ")), env)
		require.NoError(t, err, text)
		require.Equal(t, want, doc.Types[0].Retry.Interval, text)
	}
}

// What a variable holds is data: it can't become YAML or another reference.
func TestExpandedOnce(t *testing.T) {
	t.Parallel()
	env := envOf(map[string]string{"A": "${B}", "B": "b", "C": "x\", url: \"evil", "EMPTY": ""})
	for text, want := range map[string]string{
		"":                 "",
		"plain $A {B}":     "plain $A {B}",
		"${A}-${B}${B}":    "${B}-bb",
		"$${B} $${":        "${B} ${",
		"a${EMPTY}z":       "az",
		"price: 5$":        "price: 5$",
		"$${A} and ${B} $": "${A} and b $",
	} {
		got, err := expand(text, env)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	doc, err := parseDocument([]byte(`endpoints: [{type: a, stage: b, url: "https://h/", secret: "${C}"}]`), env)
	require.NoError(t, err)
	require.Equal(t, `x", url: "evil`, doc.Endpoints[0].Secret)
}

// setup is a server that keeps task types and endpoints in memory.
func setup(t *testing.T) map[string]string {
	versions, specs := map[string]int{}, map[string]string{}
	var endpoints []client.Endpoint
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/task-types", func(w http.ResponseWriter, _ *http.Request) {
		list := client.TaskTypeList{Data: []client.TaskType{}}
		for name, v := range versions {
			list.Data = append(list.Data, client.TaskType{Name: name, Version: v})
		}
		answer(w, 200, list)
	})
	mux.HandleFunc("PUT /v1/task-types/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		var spec client.TaskTypeSpec
		require.NoError(t, json.NewDecoder(r.Body).Decode(&spec))
		if text := jsonText(spec); specs[name] != text {
			versions[name], specs[name] = versions[name]+1, text
		}
		answer(w, 200, client.TaskType{Name: name, Version: versions[name]})
	})
	mux.HandleFunc("GET /v1/endpoints", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, client.EndpointList{Data: endpoints}) })
	mux.HandleFunc("POST /v1/endpoints", func(w http.ResponseWriter, r *http.Request) {
		var e client.NewEndpoint
		require.NoError(t, json.NewDecoder(r.Body).Decode(&e))
		if e.Type == "missing" {
			answerProblem(w, 404, "not_found")
			return
		}
		if e.Secret == "" {
			e.Secret = "whsec_made"
		}
		kept := client.Endpoint{ID: "e" + jsonText(len(endpoints)), Type: e.Type, Stage: e.Stage, URL: e.URL}
		endpoints = append(endpoints, kept)
		kept.Secret = e.Secret
		answer(w, 201, kept)
	})
	return serveAPI(t, mux.ServeHTTP)
}

func writeFile(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestApply(t *testing.T) {
	t.Parallel()
	env := setup(t)
	file := writeFile(t, `{types: [{name: a, stages: [{name: x, timeout: "${TIMEOUT}"}]}], endpoints: [{type: a, stage: x, url: "https://h/1"}, {type: a, stage: x, url: "https://h/2", secret: whsec_mine}]}`)
	env["TIMEOUT"] = "1s"
	r := runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t, ran{0, "created    type a\n" +
		"created    endpoint a x https://h/1  secret whsec_made (shown this once)\n" +
		"created    endpoint a x https://h/2\n", ""}, r)
	r = runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t, "unchanged  type a\nunchanged  endpoint a x https://h/1\nunchanged  endpoint a x https://h/2\n", r.stdout)
	env["TIMEOUT"] = "2s"
	r = runCLI(t, env, "types", "apply", "-f", file, "-o", "json")
	require.Zero(t, r.code)
	require.JSONEq(t, `{"data": [{"kind": "type", "name": "a", "did": "changed"},
		{"kind": "endpoint", "name": "a x https://h/1", "did": "unchanged", "id": "e0"},
		{"kind": "endpoint", "name": "a x https://h/2", "did": "unchanged", "id": "e1"}]}`, r.stdout)
	delete(env, "TIMEOUT")
	r = runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t, ran{exitUsage, "", "asyncflow: the document is wrong: types[0].stages[0].timeout names the environment variable TIMEOUT, which is not set\n"}, r)
}

// A secret that was made before the failure is not lost.
func TestApplyThatFailsHalfway(t *testing.T) {
	t.Parallel()
	env := setup(t)
	file := writeFile(t, `endpoints: [{type: a, stage: x, url: "https://h/1"}, {type: missing, stage: x, url: "https://h/"}, {type: a, stage: x, url: "https://h/2"}]`)
	r := runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t, exitNotFound, r.code)
	require.Contains(t, r.stdout, "secret whsec_made")
	require.NotContains(t, r.stdout, "https://h/2")
	require.Contains(t, r.stderr, "asyncflow: endpoint missing x https://h/: 404 not_found")
}

// The limits of a task type are read as the API reads them.
func TestDocumentLimits(t *testing.T) {
	t.Parallel()
	doc, err := parseDocument([]byte(`types: [{name: a, stages: [{name: x}], max_in_flight: 5, rate: 10/m, flow: {ordered: true, on_failure: block, rate: 2/s}}]`), nil)
	require.NoError(t, err)
	spec := doc.Types[0]
	require.Equal(t, 5, spec.MaxInFlight)
	require.Equal(t, asyncflow.Rate{Count: 10, Per: time.Minute}, spec.Rate)
	require.Equal(t, &asyncflow.Flow{Ordered: true, OnFailure: asyncflow.FlowBlock, Limits: asyncflow.Limits{Rate: asyncflow.Rate{Count: 2, Per: time.Second}}}, spec.Flow)
	for text, field := range map[string]string{"rate: 10": "types[0].rate", "rate: 0/s": "types[0].rate", "flow: {}": "types[0].flow", "flow: {ordered: true, max_in_flight: 3}": "types[0].flow.max_in_flight"} {
		_, err := parseDocument([]byte(`types: [{name: a, stages: [{name: x}], `+text+`}]`), nil)
		require.ErrorContains(t, err, field, text)
	}
}
