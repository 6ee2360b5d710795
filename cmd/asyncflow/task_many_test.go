package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestManyFlags(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_URL": closedURL(t)}
	for args, want := range map[string]string{
		"tasks cancel":                                  "name a task by its id, or many by --type",
		"tasks redrive --stage s":                       "name a task by its id, or many by --type",
		"tasks cancel t.1.1 --type t":                   "an id excludes --type",
		"tasks cancel t.1.1 --status waiting":           "an id excludes --type",
		"tasks redrive t.1.1 --error x":                 "an id excludes --type",
		"tasks redrive t.1.1 --dry-run":                 "an id excludes --type",
		"tasks cancel t.1.1 --pace 1":                   "an id excludes --type",
		"tasks cancel --type t --pace 0":                "--pace is 0; it must be above 0",
		"tasks cancel --type t --status failed":         "--status must be one of",
		"tasks redrive --type t --status running":       "--status must be one of",
		"tasks redrive --type t --context {}":           "--context and --type exclude each other",
		"tasks redrive --type t --since once":           "must be a time such as",
		"tasks redrive t.1.1 --context {bad":            "--context is not valid JSON",
		"tasks change --priority 1":                     "name a task by its id, or many by --type",
		"tasks change t.1.1 --type t --priority 1":      "an id excludes --type",
		"tasks change --type t --delay 1s":              "only the --priority can be changed",
		"tasks change --type t --priority 1 --delay 1s": "only the --priority can be changed",
		"tasks change --type t":                         "say what to change",
		"tasks delay --type t":                          "say when: --delay or --run-at",
		"tasks delay --delay 1h":                        "name a task by its id, or many by --type",
		"tasks delay t.1.1 --type t --delay 1h":         "an id excludes --type",
		"tasks rerun --type t --context {}":             "are for one task",
		"tasks rerun --type t --idempotency-key k":      "are for one task",
		"tasks rerun --type t":                          "--status is missing",
		"tasks rerun t.1.1 --status failed":             "an id excludes --type",
		"tasks rerun t.1.1 --context {bad":              "--context is not valid JSON",
		"tasks rerun t.1.1 --idempotency-key=":          "--idempotency-key must not be empty",
		"tasks change t.1.1 --context {bad":             "--context is not valid JSON",
		`tasks change t.1.1 --retry {"attempts":1}`:     "--retry must be JSON such as",
		"tasks change --type t --retry {}":              "only the --priority can be changed",
		"operations get":                                `expected "<id>"`,
		"tasks list --type t --stage s --status nobody": "--status must be one of",
	} {
		t.Run(args, func(t *testing.T) {
			r := runCLI(t, env, strings.Fields(args)...)
			require.Equal(t, exitUsage, r.code, "%s: %s", args, r.stderr)
			require.Contains(t, r.stderr, want)
			require.Empty(t, r.stdout)
		})
	}
}

// operated is a server with one operation that ends after some requests.
func operated(t *testing.T, looks int, end client.Operation, bodies *[]string) map[string]string {
	return serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case strings.Contains(string(raw), "dry_run"):
			*bodies = append(*bodies, string(raw))
			answer(w, 200, api.Count{Count: 12})
		case r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/stop"):
			*bodies = append(*bodies, string(raw))
			answer(w, 202, client.Operation{ID: "op-1", Kind: "redrive", Type: "t",
				State: client.OperationRunning, Total: 12})
		case r.URL.Path == "/v1/operations":
			answer(w, 200, client.OperationList{Data: []client.Operation{end}})
		default:
			looks--
			if looks > 0 {
				answer(w, 200, client.Operation{ID: "op-1", Kind: "redrive", Type: "t",
					State: client.OperationRunning, Total: 12, Done: 5})
				return
			}
			answer(w, 200, end)
		}
	})
}

func TestManyTasks(t *testing.T) {
	t.Parallel()
	var bodies []string
	end := client.Operation{ID: "op-1", Kind: "redrive", Type: "t", State: client.OperationDone,
		Total: 12, Done: 11, Skipped: 1, Pace: 2.5, FinishedAt: time.Unix(1, 0),
		Filter: client.OperationFilter{Stage: "s", Error: "no, \x1b", Since: time.Unix(2, 0)}}
	env := operated(t, 3, end, &bodies)
	require.Equal(t, ran{0, "12 tasks\n", ""},
		runCLI(t, env, "tasks", "redrive", "--type", "t", "--dry-run"))
	require.Equal(t, ran{0, "{\n  \"count\": 12\n}\n", ""},
		runCLI(t, env, "tasks", "cancel", "--type", "t", "--dry-run", "-o", "json"))
	require.Equal(t, []string{`{"dry_run":true,"type":"t"}`, `{"dry_run":true,"type":"t"}`}, bodies)

	r := runCLI(t, env, "tasks", "redrive", "--type", "t", "--status", "cancelled", "--stage", "s",
		"--error", "no", "--since", "2026-11-21T10:00:00Z",
		"--until", "2026-11-22T10:00:00Z", "--from-stage", "a", "--pace", "2.5")
	require.Equal(t, 0, r.code, r.stderr)
	require.Empty(t, r.stderr)
	for _, line := range []string{"id        op-1",
		`filter    stage s, error "no, \x1b", since 1970-01-01T00:00:02Z`,
		"state     done", "total     12", "done      11",
		"skipped   1", "pace      2.5 tasks a second", "finished  1970-01-01T00:00:01.000Z"} {
		require.Contains(t, r.stdout, line)
	}
	require.JSONEq(t,
		`{"type":"t","status":"cancelled","stage":"s","error":"no","since":"2026-11-21T10:00:00Z",
		"until":"2026-11-22T10:00:00Z","from_stage":"a","pace":2.5}`, bodies[2])

	r = runCLI(t, env, "tasks", "cancel", "--type", "t", "--status", "waiting", "--reason", "late",
		"--yes", "--detach", "-o", "json")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, `"state": "running"`)
	require.JSONEq(t, `{"type":"t","status":"waiting","reason":"late"}`, bodies[3])

	for _, args := range []string{"operations get op-1", "operations watch op-1",
		"operations stop op-1"} {
		t.Run(args, func(t *testing.T) {
			var o client.Operation
			require.NoError(t, json.Unmarshal([]byte(runCLI(t, env,
				strings.Fields(args+" -o json")...).stdout), &o))
			require.EqualValues(t, 11, o.Done)
		})
	}
	require.Contains(t, runCLI(t, env, "operations", "list").stdout,
		"op-1  redrive  t     done   12     11    1")
}

// The exit code of watching an operation tells how it ended.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	var bodies []string
	env := operated(t, 2, client.Operation{ID: "op-1", State: client.OperationFailed,
		Error: "no such stage"}, &bodies)
	r := runCLI(t, env, "operations", "watch", "op-1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "no such stage")
	require.Empty(t, r.stderr)
}

// Interrupting the watching doesn't stop the operation, and prints how to do so.
func TestWatchDetaches(t *testing.T) {
	t.Parallel()
	looked := make(chan bool, 100)
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		looked <- r.Method == http.MethodGet
		answer(w, 202, client.Operation{ID: "op-1", State: client.OperationRunning, Total: 12})
	})
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		for !<-looked { // the second call: the operation is started
		}
		interrupt()
	}()
	var stdout, stderr bytes.Buffer
	code := realMain(ctx, []string{"tasks", "cancel", "--type", "t"}, &stdout, &stderr,
		func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout.String())
	require.Equal(t,
		"asyncflow: interrupted: operation op-1 goes on; asyncflow operations watch op-1 shows "+
			"it, asyncflow operations stop op-1 stops it\n", stderr.String())
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]bool{"y\n": true, " Yes \n": true, "n\n": false,
		"\n": false, "": false, "yesterday\n": false} {
		t.Run(fmt.Sprintf("%q", input), func(t *testing.T) {
			var out bytes.Buffer
			require.Equal(t, want, confirm(t.Context(), strings.NewReader(input), &out,
				"cancel 3 tasks?"))
			require.Equal(t, "cancel 3 tasks? [y/N] ", out.String())
		})
	}
	in, _ := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, confirm(ctx, in, io.Discard, "cancel 3 tasks?"), "it was interrupted")
}
