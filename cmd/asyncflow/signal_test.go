package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// A whole node: a task asks, waits for its signal, and ships, or escalates when none comes.
func TestCLISignals(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		answer(rw, 200, map[string]any{"output": map[string]any{d.Stage: d.Context}})
	})
	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	run := func(code int, args ...string) ran {
		t.Helper()
		r := runCLI(t, env, args...)
		require.Equal(t, code, r.code, "%v: %s%s", args, r.stdout, r.stderr)
		return r
	}
	env["ASYNCFLOW_TOKEN"] = run(0, "token", "create", "--tenant", node.tenant).stdout
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	doc := func(timeout string) string {
		return writeFile(t, `{types: [{name: orders, stages: [{name: ask}, {name: decision, mode: wait,
			wait: {signal: approved, timeout: `+timeout+`, on_timeout: {next: escalate}}},
			{name: ship, next: [finish]}, {name: escalate}]}]}`)
	}
	run(0, "types", "apply", "-f", doc("3d"))
	require.Contains(t, run(0, "types", "diff", "-f", doc("3d")).stdout, "no difference")
	shown := run(0, "types", "get", "orders").stdout
	require.Regexp(t, `decision .*approved +3d +escalate`, shown)
	for _, stage := range []string{"ask", "ship", "escalate"} {
		run(0, "endpoints", "create", "--type", "orders", "--stage", stage, w.URL+"/"+stage)
	}
	submit := func(args ...string) (task client.SubmittedTask) {
		t.Helper()
		out := run(0, append([]string{"tasks", "submit", "orders", `1`, "-o", "json"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(out.stdout), &task))
		return task
	}

	run(0, "signals", "send", "approved", "orders:k", `{"by": "anna"}`, "--keep", "1w1h")
	id := submit("--key", "k").ID
	run(0, "tasks", "get", id, "--wait", "1m")
	require.Contains(t, run(0, "tasks", "get", id).stdout, `{"ship":{"by":"anna"}}`)
	require.Contains(t, run(1, "signals", "send", "approved", id).stderr, "is over")

	id = submit().ID
	waits := func() bool {
		var task client.Task
		require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "get", id, "-o", "json").stdout),
			&task))
		return task.WaitsFor == "signal" && task.Signal.Name == "approved"
	}
	require.Eventually(t, waits, patience, 1)
	require.Contains(t, run(0, "tasks", "get", id).stdout, "approved, until ")
	for _, says := range []string{"", "stands for this signal already"} {
		require.Contains(t, run(0, "signals", "send", "approved", id, "--idempotency-key",
			"one").stderr, says)
	}
	run(0, "tasks", "get", id, "--wait", "1m")
	require.Contains(t, run(0, "tasks", "get", id).stdout, `{"ship":{"ask":1}}`)

	run(0, "types", "apply", "-f", doc("1s"))
	id = submit().ID
	run(0, "tasks", "get", id, "--wait", "1m")
	require.Contains(t, run(0, "tasks", "get", id).stdout, `{"escalate":{"ask":1}}`)
	require.Contains(t, run(0, "tasks", "get", id).stdout, "ask → decision → escalate")
	run(2, "signals", "send", "approved", id, `{`)
	run(2, "signals", "send", "approved", id, "--idempotency-key", "")
}
