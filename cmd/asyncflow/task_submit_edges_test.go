package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

func TestDependencyFlags(t *testing.T) {
	t.Parallel()
	id := asyncflow.NewTaskID("resize", 1, 7)
	for text, want := range map[string]client.Dependency{
		"resize.1.7":                   {Task: id},
		"resize.1.7,on_failure=cancel": {Task: id, OnFailure: asyncflow.DependentCancelled},
		"upload:a,b:c":                 {Type: "upload", Key: "a,b:c"},
		"upload:k,on_failure=run,wait_for=1h30m": {Type: "upload", Key: "k",
			OnFailure: asyncflow.DependentRuns, WaitFor: asyncflow.NewDuration(90 * time.Minute)},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := dependency(text)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	for text, want := range map[string]string{
		"resize.7":               "it must be an id such as thumbnails.1.42, or TYPE:KEY",
		"resize.1.7,x=y":         "it must be an id such as thumbnails.1.42, or TYPE:KEY",
		"upload:":                "name both, as in TYPE:KEY",
		"upload:k,wait_for=soon": "must be a time such as 24h",
	} {
		t.Run(text, func(t *testing.T) {
			r := runCLI(t, nil, "tasks", "submit", "report", "--depends-on", text)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, "--depends-on is")
			assert.Contains(t, r.stderr, want)
		})
	}
	r := runCLI(t, nil, "tasks", "submit", "report", "--context-from", "dependencies")
	assert.Contains(t, r.stderr, "--context-from needs --depends-on")
	r = runCLI(t, nil, "tasks", "redrive", "--type", "t", "--dependents")
	assert.Contains(t, r.stderr, "--dependents and --type exclude each other")
}

// Tasks that wait for others, and their redrive, on the command line.
func TestCLIDependencies(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if strings.Contains(string(d.Context), "bad") {
			rw.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		answer(rw, 200, map[string]any{"output": d.Context})
	})
	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	run := func(code int, args ...string) string {
		t.Helper()
		r := runCLI(t, env, args...)
		require.Equal(t, code, r.code, "%v: %s%s", args, r.stdout, r.stderr)
		return r.stdout
	}
	env["ASYNCFLOW_TOKEN"] = run(0, "token", "create", "--tenant", node.tenant)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	run(0, "types", "apply", "-f", writeFile(t,
		`{types: [{name: pipe, stages: [{name: one, retry: {max_attempts: 1}}]}]}`))
	run(0, "endpoints", "create", "--type", "pipe", "--stage", "one", w.URL)
	submit := func(args ...string) (task client.SubmittedTask) {
		t.Helper()
		out := run(0, append([]string{"tasks", "submit", "pipe", "-o", "json"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &task))
		return task
	}
	got := submit(`"mine"`, "--depends-on", "pipe:k", "--context-from", "dependencies")
	require.Equal(t, asyncflow.StatusWaiting, asyncflow.Status(got.Status))
	require.InDelta(t, 7*24, time.Until(got.WaitsUntil).Hours(), 1, "it doesn't wait for ever")
	require.Contains(t, run(0, "tasks", "get", got.ID), "pipe:k (missing, until ")
	submit(`{"bad": true}`, "--key", "k")
	run(exitTaskFailed, "tasks", "get", got.ID, "--wait", "1m")
	other := run(0, "tasks", "list", "--type", "pipe", "-o", "json")
	var page client.TaskList
	require.NoError(t, json.Unmarshal([]byte(other), &page))
	bad := page.Data[0]
	require.Equal(t, "k", bad.Key)
	require.Contains(t, run(0, "tasks", "redrive", bad.ID, "--dependents", "--dry-run"), got.ID)
	require.Contains(t, run(0, "tasks", "redrive", bad.ID, "--dependents", "--context", `"good"`),
		got.ID)
	require.Contains(t, run(0, "tasks", "get", got.ID, "--wait", "1m"), `"output":"good"`)
}
