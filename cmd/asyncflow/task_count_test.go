package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
)

// Tasks are counted on a real node: at once, and all of them by an operation.
func TestCLICount(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if string(d.Context) == "3" {
			rw.WriteHeader(http.StatusBadRequest)
		}
	})
	c := node.client()
	w.pipe(t, c, client.TaskTypeSpec{Stages: []client.Stage{{Name: "only",
		Retry: client.RetryPolicy{MaxAttempts: 1}}}})
	for _, id := range submitMany(t, c, 5) {
		task, err := c.Wait(t.Context(), id, patience)
		require.NoError(t, err)
		require.True(t, task.Status.Final())
	}
	run := clientOf(t, node)
	count := func(args ...string) string {
		t.Helper()
		return run(0, append([]string{"tasks", "count", "--type", "pipe"}, args...)...)
	}
	assert.Equal(t, "5 tasks\n", count())
	assert.Equal(t, "1 task\n", count("--status", "failed", "--error", "BAD REQUEST"))
	assert.Equal(t, "0 tasks\n", count("--key", "nobody's"))
	assert.JSONEq(t, `{"count":4,"exact":true}`, count("--status", "succeeded", "--since", "1h",
		"-o", "json"))
	assert.Equal(t, "4 tasks\n", count("--status", "succeeded", "--exact"))
	assert.JSONEq(t, `{"count":1,"exact":true}`, count("--status", "failed", "--stage", "only",
		"--error", "bad request", "--exact", "-o", "json"))

	begun := count("--status", "failed", "--error", "bad request", "--until",
		"2036-11-21T10:00:00.5Z", "--exact", "--detach")
	filter := `(?m)^filter +status failed, error "bad request", until 2036-11-21T10:00:00.5Z, children false$`
	assert.Regexp(t, filter, begun)
	assert.Regexp(t, `(?m)^kind +count$`, begun)
	watched := run(0, "operations", "watch", strings.Fields(begun)[1])
	assert.Regexp(t, filter, watched)
	assert.Regexp(t, `(?m)^done +1$`, watched)

	run(exitNotFound, "tasks", "count", "--type", "nope")
	run(exitNotFound, "tasks", "count", "--type", "nope", "--exact")
	run(exitFailed, "tasks", "count", "--type", "pipe", "--parent", "other.1.1")
	reader := map[string]string{"ASYNCFLOW_URL": node.url,
		"ASYNCFLOW_TOKEN": tokenOf(t, node.tenant, auth.ScopeRead)}
	assert.Zero(t, runCLI(t, reader, "tasks", "count", "--type", "pipe").code)
	assert.Equal(t, exitForbidden,
		runCLI(t, reader, "tasks", "count", "--type", "pipe", "--exact").code)
}

func TestCountFlags(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_URL": closedURL(t)}
	for args, want := range map[string]string{
		"--type t --status gone": "--status must be one of",
		"--type t --since once":  "must be a time such as",
		"--type t --detach":      "--detach needs --exact",
		"--type t --text x":      "unknown flag --text",
		"--ended-since soon":     "must be a time such as",
		"--attempts many":        "--attempts",
	} {
		t.Run(args, func(t *testing.T) {
			r := runCLI(t, env, append([]string{"tasks", "count"}, strings.Fields(args)...)...)
			require.Equal(t, exitUsage, r.code, "%s: %s", args, r.stderr)
			require.Contains(t, r.stderr, want)
			require.Empty(t, r.stdout)
		})
	}
}

// A count that ended early says so.
func TestCountAtLeast(t *testing.T) {
	t.Parallel()
	var asked string
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.RequestURI
		answer(w, 200, client.TaskCount{Count: 10_000})
	})
	args := []string{"tasks", "count", "--type", "t", "--stage", "s", "--parent", "p.1.1"}
	require.Equal(t, ran{0, "at least 10000 tasks\n", ""}, runCLI(t, env, args...))
	require.Equal(t, "/v1/tasks/count?parent=p.1.1&stage=s&type=t", asked)
	require.JSONEq(t, `{"count":10000,"exact":false}`,
		runCLI(t, env, append(args, "-o", "json")...).stdout)
}

// There is no count of an operation that was stopped: it is shown itself.
func TestExactCountIsStopped(t *testing.T) {
	t.Parallel()
	var bodies []string
	env := operated(t, 3, client.Operation{ID: "op-1", Kind: "count", Type: "t",
		State: client.OperationStopped, Done: 5}, &bodies)
	args := []string{"tasks", "count", "--type", "t", "--status", "running", "--exact"}
	r := runCLI(t, env, args...)
	require.Equal(t, exitFailed, r.code)
	require.Regexp(t, `(?m)^state +stopped$`, r.stdout)
	require.Equal(t, []string{`{"children":false,"status":"running","type":"t"}`}, bodies)
	r = runCLI(t, env, append(args, "-o", "json")...)
	require.Equal(t, exitFailed, r.code)
	var o client.Operation
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &o))
	require.Equal(t, client.OperationStopped, o.State)
}
