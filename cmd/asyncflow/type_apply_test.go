package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// configServer is a server with task types and endpoints in memory.
func configServer(t *testing.T) map[string]string {
	versions, specs := map[string]int{}, map[string]string{}
	var endpoints []client.Endpoint
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/task-types/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if versions[name] == 0 {
			answerProblem(w, 404, "not_found")
			return
		}
		w.Header().Set("ETag", etagOf(versions[name]))
		answer(w, 200, client.TaskType{Name: name, Version: versions[name]})
		if name == "raced" { // somebody else changes it
			versions[name]++
		}
	})
	mux.HandleFunc("PUT /v1/task-types/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		var spec client.TaskTypeSpec
		require.NoError(t, json.NewDecoder(r.Body).Decode(&spec))
		match, isNew := r.Header.Get("If-Match"), r.Header.Get("If-None-Match") == "*"
		if isNew != (versions[name] == 0) || !isNew && match != etagOf(versions[name]) {
			answerProblem(w, 412, "precondition_failed")
			return
		}
		if text := jsonText(spec); specs[name] != text {
			versions[name], specs[name] = versions[name]+1, text
		}
		answer(w, 200, client.TaskType{Name: name, Version: versions[name]})
	})
	mux.HandleFunc("GET /v1/endpoints",
		func(w http.ResponseWriter,
			_ *http.Request) {
			answer(w, 200, client.EndpointList{Data: endpoints})
		})
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
		kept := client.Endpoint{ID: "e" + jsonText(len(endpoints)), Type: e.Type, Stage: e.Stage,
			URL: e.URL}
		endpoints = append(endpoints, kept)
		kept.Secret = e.Secret
		answer(w, 201, kept)
	})
	return serveAPI(t, mux.ServeHTTP)
}

func etagOf(version int) string { return `"v` + strconv.Itoa(version) + `"` }

func writeFile(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestApply(t *testing.T) {
	t.Parallel()
	env := configServer(t)
	file := writeFile(t,
		`{types: [{name: a, stages: [{name: x, timeout: "${TIMEOUT}"}]}], endpoints: [{type: a, `+
			`stage: x, url: "https://h/1"}, {type: a, stage: x, url: "https://h/2", secret: whsec_mine}]}`)
	env["TIMEOUT"] = "1s"
	r := runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t, ran{0, "created    type a\n" +
		"created    endpoint a x https://h/1  secret whsec_made (shown this once)\n" +
		"created    endpoint a x https://h/2\n", ""}, r)
	r = runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t,
		"unchanged  type a\nunchanged  endpoint a x https://h/1\nunchanged  endpoint a x "+
			"https://h/2\n",
		r.stdout)
	env["TIMEOUT"] = "2s"
	r = runCLI(t, env, "types", "apply", "-f", file, "-o", "json")
	require.Zero(t, r.code)
	require.JSONEq(t, `{"data": [{"kind": "type", "name": "a", "did": "changed"},
		{"kind": "endpoint", "name": "a x https://h/1", "did": "unchanged", "id": "e0"},
		{"kind": "endpoint", "name": "a x https://h/2", "did": "unchanged", "id": "e1"}]}`, r.stdout)
	delete(env, "TIMEOUT")
	r = runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t,
		ran{exitUsage, "",
			"asyncflow: the document is wrong: " + file +
				":1: types[0].stages[0].timeout names the " +
				"environment variable TIMEOUT, which is not set\n"}, r)
}

// What somebody else changes between the read and the write isn't undone. The rest is applied.
func TestApplyUndoesNoChange(t *testing.T) {
	t.Parallel()
	env := configServer(t)
	file := writeFile(t, `types:
  - {name: raced, stages: [{name: x}]}
  - {name: other, stages: [{name: x}]}`)
	require.Zero(t, runCLI(t, env, "types", "apply", "-f", file).code)
	r := runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "unchanged  type other\n", r.stdout)
	require.Contains(t, r.stderr, file+":2: type raced: 412 precondition_failed")
}

// A secret that was created before the failure is shown. What comes after a refusal is applied.
func TestApplyThatFailsHalfway(t *testing.T) {
	t.Parallel()
	env := configServer(t)
	file := writeFile(t,
		`endpoints: [{type: a, stage: x, url: "https://h/1"},
{type: missing, stage: x, url: "https://h/"},
{type: a, stage: x, url: "https://h/2"},
{type: missing, stage: y, url: "https://h/"}]`)
	r := runCLI(t, env, "types", "apply", "-f", file)
	require.Equal(t, exitNotFound, r.code)
	require.Contains(t, r.stdout, "secret whsec_made")
	require.Contains(t, r.stdout, "created    endpoint a x https://h/2")
	require.Contains(t, r.stderr, "asyncflow: "+file+":2: endpoint missing x https://h/: 404 "+
		"not_found")
	require.Contains(t, r.stderr, "\n"+file+":4: endpoint missing y https://h/: 404 not_found")
}
