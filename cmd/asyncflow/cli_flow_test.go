package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// The commands of the client run against a real node: from a token to the end of a task, and
// the deletion of everything. What they leave is work for the background jobs.
func TestCLIFlow(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := amongStrangers(t)
	node := startNode(t, url)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if strings.Contains(string(d.Context), "bad") {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		answer(rw, 200, map[string]any{"output": map[string]string{"done": d.Stage}})
	})
	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_JWT_SECRET": testJWTSecret,
		"WORKER": w.URL, "SECRET": testWebhook}
	run := func(code int, args ...string) string {
		t.Helper()
		r := runCLI(t, env, args...)
		require.Equal(t, code, r.code, "%v: %s%s", args, r.stdout, r.stderr)
		return r.stdout
	}
	run(exitForbidden, "types", "list")
	env["ASYNCFLOW_TOKEN"] = run(0, "token", "create", "--tenant", testTenant)
	run(0, "healthcheck")

	file := writeFile(t,
		`{types: [{name: pipe, stages: [{name: one}, {name: two, retry: {max_attempts: 1}}]}], `+
			`endpoints: [{type: pipe, stage: one, url: "${WORKER}", secret: "${SECRET}"}]}`)
	require.Equal(t, 2, strings.Count(run(0, "types", "apply", "-f", file), "created"))
	require.Equal(t, 2, strings.Count(run(0, "types", "apply", "-f", file), "unchanged"))
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	run(0, "endpoints", "create", "--type", "pipe", "--stage", "two", w.URL)
	require.Equal(t, 3, strings.Count(run(0, "endpoints", "list", "--type", "pipe"), "\n"))
	require.Contains(t, run(0, "types", "list"), "one → two")
	require.Contains(t, run(0, "types", "get", "pipe"), "30s")

	released := runCLI(t, env, "types", "release", "pipe", "customer-17")
	require.Equal(t, []any{0, "released  0\n",
		`asyncflow: no failed task blocks the flow key "customer-17" of pipe: nothing to release` +
			"\n"},
		[]any{released.code, released.stdout, released.stderr})

	var task client.Task
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "submit", "pipe", `{"a": "<b>"}`,
		"--wait", "-o", "json")), &task))
	require.JSONEq(t, `{"done": "two"}`, string(task.Result))
	attempts := run(0, "tasks", "attempts", task.ID)
	require.Contains(t, attempts, "succeeded")
	require.Contains(t, attempts, w.URL)
	require.Regexp(t, `^\S+  one #1 done in \S+s\n\S+  two #1 done in \S+s\n\S+  succeeded\n$`,
		run(0, "tasks", "watch", task.ID))
	require.Equal(t, 3, strings.Count(run(0, "tasks", "watch", task.ID, "-o", "json"), "\n"))
	require.Contains(t, run(0, "tasks", "submit", "pipe", "--key", "k-1", "--wait"), "k-1")
	require.Contains(t, run(exitTaskFailed, "tasks", "submit", "pipe", `"bad"`, "--max-attempts",
		"1", "--wait"), "failed")
	run(exitNotFinal, "tasks", "submit", "pipe", "--delay", "1h", "--wait", "--timeout", "10ms")
	require.Equal(t, "submitted 2500, refused 0\n",
		run(0, "tasks", "submit", "pipe", "-f", writeFile(t, numbers(2500)), "--delay", "1h"))
	var list client.TaskList
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "list", "--type", "pipe", "--status",
		"waiting", "--limit", "0", "-o", "json")), &list))
	require.Len(t, list.Data, 2501)
	require.Equal(t, 2, strings.Count(run(0, "tasks", "list", "--type", "pipe", "--status",
		"failed", "--since", "1h"), "\n"))

	require.Regexp(t, `\npipe +2501 +0 +0 +2 +1 +0 `, run(0, "stats"))
	require.Equal(t, 2, strings.Count(run(0, "tasks", "list", "--type", "pipe", "--stage", "one",
		"--error", "INTERNAL"), "\n"))
	var operation client.Operation
	require.Equal(t, "1 task\n", run(0, "tasks", "redrive", "--type", "pipe", "--dry-run"))
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "redrive", "--type", "pipe", "-o",
		"json")), &operation))
	require.Equal(t, client.OperationDone, operation.State)
	require.EqualValues(t, 1, operation.Done)
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "cancel", "--type", "pipe", "--status",
		"waiting", "--pace", "0.1", "--detach", "-o", "json")), &operation))
	require.EqualValues(t, 2501, operation.Total)
	require.Contains(t, run(0, "operations", "stop", operation.ID), "stopped")
	require.Contains(t, run(0, "operations", "list"), operation.ID)
	run(exitFailed, "operations", "watch", operation.ID)
	run(exitNotFound, "operations", "get", "nothing")

	run(exitNotFound, "tasks", "get", "pipe.1.999999")
	run(exitFailed, "types", "delete", "pipe") // live tasks
	var endpoints client.EndpointList
	require.NoError(t, json.Unmarshal([]byte(run(0, "endpoints", "list", "-o", "json")),
		&endpoints))
	for _, e := range endpoints.Data {
		require.Contains(t, run(0, "endpoints", "get", e.ID), e.URL)
		require.Contains(t, run(0, "endpoints", "delete", e.ID), "deleted")
	}
	run(0, "types", "apply", "-f", writeFile(t, `{types: [{name: gone, stages: [{name: x}]}]}`))
	require.JSONEq(t, `{"deleted": "gone"}`, run(0, "types", "delete", "gone", "-o", "json"))
	everyJob(t, url)
}
