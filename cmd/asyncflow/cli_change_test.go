package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/document"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// clientOf returns a function that runs a command against a node, checks its exit code, and
// returns its standard output.
func clientOf(t *testing.T, node *process) func(code int, args ...string) string {
	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	run := func(code int, args ...string) string {
		t.Helper()
		r := runCLI(t, env, args...)
		require.Equal(t, code, r.code, "%v: %s%s", args, r.stdout, r.stderr)
		return r.stdout
	}
	env["ASYNCFLOW_TOKEN"] = run(0, "token", "create", "--tenant", node.tenant)
	return run
}

// An earlier version is shown, compared, and gone back to.
func TestCLIVersions(t *testing.T) {
	t.Parallel()
	run := clientOf(t, sharedNode(t))
	first := writeFile(t, `{types: [{name: pipe, stages: [{name: one, timeout: 10s}]}]}`)
	second := writeFile(t, `{types: [{name: pipe, retention: {tasks: 30d, context: 7d},
		stages: [{name: one, timeout: 20s}, {name: two}]}]}`)
	run(0, "types", "apply", "-f", first)
	run(0, "types", "apply", "-f", second)
	require.Regexp(t, `^VERSION +APPLIED +STATE *\n2 .* present *\n1 .*\n$`,
		run(0, "types", "versions", "pipe"))
	old := run(0, "types", "versions", "pipe", "1")
	require.Contains(t, run(0, "types", "diff", "-f", writeFile(t, old)),
		`stages[one].timeout: "20s" becomes "10s"`, "it is a document")
	require.Equal(t, `~ type pipe
    retention: "4320h" becomes {"tasks":"30d","context":"7d"}
    stages: one becomes one → two
    stages[one].timeout: "10s" becomes "20s"
`, run(0, "types", "versions", "pipe", "2", "--diff", "1"))
	run(exitUsage, "types", "versions", "pipe", "--diff", "1")
	run(exitNotFound, "types", "versions", "pipe", "3")
	run(exitNotFound, "types", "versions", "nothing")
	run(exitNotFound, "types", "rollback", "pipe", "9")

	would := run(0, "types", "rollback", "pipe", "1", "--dry-run")
	require.Contains(t, would, `retention: {"tasks":"30d","context":"7d"} becomes "4320h"`)
	require.Contains(t, run(0, "types", "versions", "pipe"), "2 ", "nothing was applied")
	run(0, "types", "pause", "pipe")
	run(0, "tasks", "submit", "pipe")
	require.Equal(t, would+"changed    type pipe\n", run(0, "types", "rollback", "pipe", "1"))
	require.Equal(t, "no difference\n", run(0, "types", "versions", "pipe", "3", "--diff", "1"))

	// A stage with live tasks doesn't go.
	run(0, "types", "rollback", "pipe", "2")
	run(0, "types", "apply", "-f",
		writeFile(t, `{types: [{name: pipe, stages: [{name: two}], stage_mapping: {one: two}}]}`))
	run(0, "tasks", "submit", "pipe")
	require.Contains(t, run(0, "types", "rollback", "pipe", "1", "--dry-run"), "would be refused")
	run(exitFailed, "types", "rollback", "pipe", "1")
}

func TestCLIDiff(t *testing.T) {
	t.Parallel()
	run := clientOf(t, sharedNode(t))
	first := writeFile(t, `{types: [{name: pipe, stages: [{name: one}, {name: two, timeout: 10s}]}]}`)
	require.Equal(t, "+ type pipe\n", run(0, "types", "diff", "-f", first))
	run(0, "types", "apply", "-f", first)
	require.Equal(t, "no difference\n", run(0, "types", "diff", "-f", first, "--exit-code"))

	run(0, "tasks", "submit", "pipe", "--delay", "1h")
	second := writeFile(t,
		`{types: [{name: pipe, retry: {max_attempts: 3}, stages: [{name: two, timeout: 20s}, {name: `+
			`three}]}],
		endpoints: [{type: pipe, stage: two, url: "https://worker.example.com"}]}`)
	require.Equal(t, `~ type pipe
    retry: {} becomes {"max_attempts":3}
    stages: one → two becomes two → three
    stages[two].retry: {"max_attempts":20,"interval":3600} becomes `+
		`{"max_attempts":3,"interval":3600}
    stages[two].timeout: "10s" becomes "20s"
    would be refused: stage "one" can't be removed: live tasks stand in it; stage_mapping can `+
		`say where they go on
+ endpoint pipe two https://worker.example.com
`, run(exitFailed, "types", "diff", "-f", second, "--exit-code"))
	run(exitFailed, "types", "apply", "-f", second)

	mapped := writeFile(t,
		`{types: [{name: pipe, stages: [{name: two, timeout: 10s}], stage_mapping: {one: two}}]}`)
	var found struct{ Data []document.Difference }
	require.NoError(t, json.Unmarshal([]byte(run(0, "types", "diff", "-f", mapped, "-o", "json")),
		&found))
	require.Equal(t, []document.Difference{{Kind: "type", Name: "pipe",
		Fields: []document.FieldDifference{

			{Field: "stage_mapping.one", To: `"two"`},
			{Field: "stages", From: "one → two", To: "two"},
		}}}, found.Data)
	run(0, "types", "apply", "-f", mapped)
	require.Contains(t, run(0, "types", "get", "pipe"), `{"one":"two"}`)
	require.Contains(t, run(0, "tasks", "list", "--type", "pipe"), "waiting  two")
}

func TestCLIPauseAndChange(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	run := clientOf(t, sharedNode(t))
	run(0, "types", "apply", "-f", writeFile(t,
		`{types: [{name: pipe, stages: [{name: one}, {name: two}]}]}`))
	require.Contains(t, run(0, "types", "pause", "pipe", "--reason", "the worker moves"),
		"the worker moves")
	var task client.Task
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "submit", "pipe", "-o", "json")),
		&task))
	require.Contains(t, run(0, "tasks", "get", task.ID), "paused")
	require.NotContains(t, run(0, "types", "list"), "two  -")

	require.Contains(t, run(0, "tasks", "change", task.ID, "--priority", "60, 0"), "[60,0]")
	require.Contains(t, run(0, "tasks", "change", task.ID, "--delay", "2h"), "waiting")
	require.Contains(t, run(0, "tasks", "change", task.ID, "--delay", "0s"), "pending")
	require.Contains(t, run(0, "tasks", "delay", task.ID, "--delay", "2h"), "waiting")
	require.Contains(t, run(0, "tasks", "delay", "--type", "pipe", "--delay", "0s"), "done      1")
	run(0, "tasks", "change", task.ID, "--context", `{"mended": true}`)
	require.Contains(t, run(0, "tasks", "attempts", task.ID, "-o", "json"), `"mended": true`)
	run(0, "tasks", "change", task.ID, "--retry", `{"max_attempts": 7}`)
	require.Contains(t, run(0, "tasks", "attempts", task.ID),
		`retry none becomes {"max_attempts":7}`)
	run(exitFailed, "tasks", "rerun", task.ID)
	run(0, "tasks", "cancel", task.ID)
	var again client.SubmittedTask
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "rerun", task.ID,
		"--idempotency-key", "k", "-o", "json")), &again))
	require.Contains(t, run(0, "tasks", "rerun", task.ID, "--idempotency-key", "k"), again.ID)
	require.Contains(t, run(0, "tasks", "get", again.ID), task.ID)
	require.Contains(t, run(0, "tasks", "rerun", "--type", "pipe", "--status", "cancelled"),
		"done      1")
	const patch = `{"mended":null,"by":"anna"}`
	require.Contains(t, run(0, "tasks", "rerun", "--type", "pipe", "--status", "cancelled",
		"--context-patch", patch), "context patch  "+patch)
	require.Contains(t, run(0, "tasks", "list", "--type", "pipe"), task.ID)
	one := run(0, "tasks", "rerun", task.ID, "--context-patch", patch, "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(one), &again))
	require.Contains(t, run(0, "tasks", "get", again.ID, "-o", "json"), `"by": "anna"`)
	run(exitUsage, "tasks", "rerun", task.ID, "--context-patch", "{")
	run(exitUsage, "tasks", "rerun", task.ID, "--context-patch", patch, "--context", "1")
	run(exitUsage, "tasks", "rerun", "--type", "pipe", "--status", "failed", "--context", "1")
	run(exitUsage, "tasks", "change", task.ID)
	run(exitUsage, "tasks", "change", task.ID, "--priority", "high")
	run(exitUsage, "tasks", "change", task.ID, "--delay", "1h", "--run-at", "2027-01-01T00:00:00Z")

	require.Contains(t, run(0, "types", "resume", "pipe", "--ramp", "5m"), "ramping up until")
	require.Contains(t, run(0, "types", "list"), "two  -")
}
