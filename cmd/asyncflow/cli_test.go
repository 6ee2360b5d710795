package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// ran is the result of a command.
type ran struct {
	code           int
	stdout, stderr string
}

// runCLI runs a command in this process with nothing but env in its environment. ASYNCFLOW_URL
// should be in env, or the command may use a dev server of this machine.
func runCLI(t *testing.T, env map[string]string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	line := freshCommandLine(t)
	defer commandLines.Put(line)
	code := line.run(t.Context(), args, &stdout, &stderr,
		func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return ran{code, stdout.String(), stderr.String()}
}

// commandLines are built and used by no test at the moment: to build one takes 8 ms of processor
// time, and tests run a thousand commands.
var commandLines sync.Pool

// freshCommandLine returns a command line that knows nothing of an earlier command.
func freshCommandLine(t *testing.T) *commandLine {
	t.Helper()
	if line, ok := commandLines.Get().(*commandLine); ok {
		forget(t, line)
		return line
	}
	line, err := newCommandLine()
	require.NoError(t, err)
	return line
}

// forget makes a command line forget the command that it ran: kong itself gives flags their
// defaults, but remembers which of them were set.
func forget(t *testing.T, line *commandLine) {
	t.Helper()
	line.flags, line.helped = cli{}, false
	require.NoError(t, kong.Visit(line.parser.Model, func(v kong.Visitable, next kong.Next) error {
		switch v := v.(type) {
		case *kong.Flag:
			v.Set, v.Active, v.Negated = false, false, false
		case *kong.Value:
			v.Set, v.Active = false, false
		case *kong.Node:
			v.Active = false
		}
		return next(nil)
	}))
}

// A command line that ran a command runs the next one as a new one does.
func TestCommandLineIsUsedAgain(t *testing.T) {
	t.Parallel()
	env := func(string) (string, bool) { return "", false }
	line, err := newCommandLine()
	require.NoError(t, err)
	for _, args := range [][]string{
		{"tasks", "list", "--help"},
		{"endpoints", "create", "--type", "a", "--stage", "b", "--output", "quiet", "http://w"},
		{"endpoints", "create", "http://w"},
		{"endpoints", "create"},
		{"tasks", "list", "--none"},
		{"version", "-o", "json"},
		{"version"},
	} {
		var got, want ran
		var stdout, stderr bytes.Buffer
		want.code = realMain(t.Context(), args, &stdout, &stderr, env)
		want.stdout, want.stderr = stdout.String(), stderr.String()
		stdout.Reset()
		stderr.Reset()
		forget(t, line)
		got.code = line.run(t.Context(), args, &stdout, &stderr, env)
		got.stdout, got.stderr = stdout.String(), stderr.String()
		require.Equal(t, want, got, args)
	}
}

// serveAPI serves a handler and returns an environment that points to it.
func serveAPI(t *testing.T, handler http.HandlerFunc) map[string]string {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return map[string]string{"ASYNCFLOW_URL": s.URL, "ASYNCFLOW_TOKEN": "a-token"}
}

func answer(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

func answerProblem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Retry-After", "3600")
	answer(w, status, client.Problem{Type: "about:blank", Title: http.StatusText(status),
		Status: status, Code: code, Detail: "it is so"})
}

// closedURL returns a URL at which nothing listens.
func closedURL(t *testing.T) string {
	return "http://" + freeAddress(t)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	r := runCLI(t, nil, "--help")
	require.Zero(t, r.code)
	require.Empty(t, r.stderr)
	for _, text := range []string{"Exit codes:", "7  with --wait", "$ASYNCFLOW_URL",
		"tasks <command>",
		"serve", "dev", "migrate", "tenants"} {
		require.Contains(t, r.stdout, text)
	}
	r = runCLI(t, nil, "tasks", "submit", "--help")
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "    asyncflow tasks submit thumbnails -f contexts.jsonl")
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_URL": closedURL(t)}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no command":      {nil, "asyncflow: expected one of"},
		"unknown command": {[]string{"taks"}, "unexpected argument taks"},
		"unknown flag":    {[]string{"version", "--nope"}, "unknown flag --nope"},
		"missing argument": {[]string{"tasks", "get"},
			`expected "<id>" (see asyncflow tasks get --help)`},
		"missing settings": {[]string{"serve"},
			"asyncflow: set DATABASE_URL and ASYNCFLOW_SECRET in the environment (see asyncflow " +
				"serve --help)"},
		"of many commands": {[]string{"keys", "reseal"},
			"set DATABASE_URL and ASYNCFLOW_SECRET in the environment"},
		"one setting": {[]string{"serve", "--database-url=x"},
			"set ASYNCFLOW_SECRET in the environment"},
		"missing flag": {[]string{"types", "apply"}, "missing flags: --file=FILE"},
		"bad output": {[]string{"version", "-o", "xml"},
			`--output must be one of "table","json","quiet" but got "xml"`},
		"quiet":   {[]string{"version", "-o", "quiet"}, "only asyncflow listen can be quiet"},
		"bad URL": {[]string{"version", "--url", "localhost"}, "url must be an absolute URL"},
		"bad status": {[]string{"tasks", "list", "--type", "t", "--status", "done"},
			"--status must be one of"},
		"bad time": {[]string{"tasks", "list", "--type", "t", "--since", "yesterday"},
			"must be a time such as"},
		"bad duration": {[]string{"tasks", "submit", "t", "--delay", "5x"},
			`--delay: must be a duration such as "30s" or "7d", not "5x"`},
		"two times": {[]string{"tasks", "submit", "t", "--delay", "1s", "--run-at",
			"2026-11-21T10:00:00Z"}, "can't be used together"},
		"no type":     {[]string{"tasks", "submit"}, "name a task type, or a file"},
		"bad context": {[]string{"tasks", "submit", "t", "{bad"}, "the context is not valid JSON"},
		"empty key":   {[]string{"tasks", "submit", "t", "--key", ""}, "--key must not be empty"},
		"max wait without replace": {[]string{"tasks", "submit", "t", "--key", "k", "--max-wait",
			"1m"}, "--max-wait needs --on-conflict replace"},
		"empty flow key": {[]string{"tasks", "submit", "t", "--flow-key="},
			"--flow-key must not be empty"},
		"no such file": {[]string{"tasks", "submit", "t", "@/does/not/exist"}, "no such file"},
		"context and file": {[]string{"tasks", "submit", "t", "{}", "-f", "x"},
			"exclude each other"},
		"wait and file": {[]string{"tasks", "submit", "t", "-f", "x", "--wait"},
			"exclude each other"},
		"options and tasks": {[]string{"tasks", "submit", "-f", "x", "--delay", "1s"},
			"write the options into them"},
		"no endpoint URL": {[]string{"endpoints", "create", "--type", "t", "--stage", "s"},
			`expected "<endpoint-url>"`},
		"no document": {[]string{"types", "apply", "-f", "/does/not/exist"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runCLI(t, env, tc.args...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Contains(t, r.stderr, tc.want)
			require.Regexp(t, `^asyncflow: [^\n]+\n$`, r.stderr)
			require.Empty(t, r.stdout)
		})
	}
}

func TestExitCodesOfAnswers(t *testing.T) {
	t.Parallel()
	for status, tc := range map[int]struct {
		code string
		want int
	}{
		400: {"invalid_argument", exitFailed},
		401: {"unauthenticated", exitForbidden},
		403: {"permission_denied", exitForbidden},
		404: {"not_found", exitNotFound},
		409: {"conflict", exitFailed},
		500: {"internal", exitFailed},
		503: {"unavailable", exitUnavailable},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			env := serveAPI(t,
				func(w http.ResponseWriter, _ *http.Request) { answerProblem(w, status, tc.code) })
			for _, args := range [][]string{{"tasks", "get", "t.1.1"}, {"types", "list"},
				{"tasks", "submit", "t"}, {"endpoints", "delete", "e"}} {
				r := runCLI(t, env, args...)
				require.Equal(t, tc.want, r.code, args)
				require.Contains(t, r.stderr, fmt.Sprintf("asyncflow: %d %s: it is so", status,
					tc.code))
				require.Empty(t, r.stdout)
			}
		})
	}
}

func TestNotReachable(t *testing.T) {
	t.Parallel()
	url := closedURL(t)
	r := runCLI(t, map[string]string{"ASYNCFLOW_URL": url}, "tasks", "submit", "t")
	require.Equal(t, exitUnavailable, r.code)
	require.Contains(t, r.stderr, "asyncflow: no answer from "+url+
		": connect: connection refused (start one with")
	require.Contains(t, r.stderr, "or set --url or ASYNCFLOW_URL)\n")
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	t.Parallel()
	var token string
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		token = r.Header.Get("Authorization")
		answer(w, 200, client.TaskTypeList{})
	})
	require.Zero(t, runCLI(t, env, "types", "list").code)
	require.Equal(t, "Bearer a-token", token)
	require.Zero(t, runCLI(t, env, "types", "list", "--token", "other").code)
	require.Equal(t, "Bearer other", token)
	env["ASYNCFLOW_TOKEN"] = "" // empty is unset
	require.Zero(t, runCLI(t, env, "types", "list").code)
	require.Empty(t, token)
	env["ASYNCFLOW_POOL"] = ""
	require.Contains(t, runCLI(t, env, "serve").stderr, "set DATABASE_URL and ASYNCFLOW_SECRET")
	env["ASYNCFLOW_POOL"] = "many"
	require.Contains(t, runCLI(t, env, "serve").stderr, "--pool: expected")
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	ready := true
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/readyz", r.URL.Path)
		require.Empty(t, r.Header.Get("Authorization"))
		if !ready {
			answerProblem(w, 503, "unavailable")
			return
		}
		answer(w, 200, client.ServerHealth{Status: "ok"})
	})
	require.Equal(t, ran{0, "ok\n", ""}, runCLI(t, env, "healthcheck"))
	ready = false
	require.Equal(t, exitFailed, runCLI(t, env, "healthcheck").code)
	require.Equal(t, exitFailed, runCLI(t, env, "healthcheck", "--url", closedURL(t)).code)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_URL": defaultURL}
	require.Regexp(t, `^asyncflow dev .*go1\.`, runCLI(t, env, "version").stdout)
	var b buildInfo
	require.NoError(t, json.Unmarshal([]byte(runCLI(t, env, "version", "-o", "json").stdout), &b))
	require.Equal(t, "dev", b.Version)
}

func TestWaitTellsTheEnd(t *testing.T) {
	t.Parallel()
	for status, want := range map[client.Status]int{client.StatusSucceeded: 0,
		client.StatusFailed: exitTaskFailed, client.StatusRunning: exitNotFinal} {
		t.Run(string(status), func(t *testing.T) {
			env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					answer(w, 201, client.SubmittedTask{ID: "t.1.1", Type: "t"})
					return
				}
				answer(w, 200, client.Task{ID: "t.1.1", Type: "t", Status: status,
					CreatedAt: time.Now()})
			})
			r := runCLI(t, env, "tasks", "get", "t.1.1", "--wait", "10ms")
			require.Equal(t, want, r.code)
			require.Contains(t, r.stdout, string(status))
			require.Equal(t, want == exitNotFinal, r.stderr != "", r.stderr)
			require.Equal(t, want, runCLI(t, env, "tasks", "submit", "t", "--wait", "--timeout",
				"10ms").code)
			require.Zero(t, runCLI(t, env, "tasks", "get", "t.1.1").code)
		})
	}
}

// The id of a submitted task is shown, whatever happens while waiting for it.
func TestSubmittedTaskIsNamedWhenWaitingFails(t *testing.T) {
	t.Parallel()
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			answer(w, 201, client.SubmittedTask{ID: "t.1.77", Type: "t"})
			return
		}
		answerProblem(w, 503, "unavailable")
	})
	r := runCLI(t, env, "tasks", "submit", "t", "--wait")
	require.Equal(t, exitUnavailable, r.code)
	require.Contains(t, r.stderr, "task t.1.77 is submitted, but: 503")
}

func TestSubmitSendsWhatWasAsked(t *testing.T) {
	t.Parallel()
	var body string
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		body = string(raw)
		answer(w, 201, client.SubmittedTask{ID: "t.1.1", Type: "t"})
	})
	require.Zero(t, runCLI(t, env, "tasks", "submit", "t").code)
	require.JSONEq(t, `{"type":"t","context":{}}`, body)
	require.Zero(t, runCLI(t, env, "tasks", "submit", "t", `[1]`, "--priority", "60", "--delay",
		"5m", "--max-attempts", "3").code)
	require.JSONEq(t,
		`{"type":"t","context":[1],"priority":60,"delay":"5m","retry":{"max_attempts":3}}`, body)
	require.Zero(t, runCLI(t, env, "tasks", "submit", "t", "--run-at", "2026-11-21T10:00:00Z").code)
	require.JSONEq(t, `{"type":"t","context":{},"run_at":"2026-11-21T10:00:00Z"}`, body)
	require.Zero(t, runCLI(t, env, "tasks", "submit", "t", "--key", "k", "--on-conflict", "replace",
		"--delay", "5s", "--max-wait", "1m").code)
	require.JSONEq(t, `{"type":"t","context":{},"key":"k","on_conflict":"replace","delay":"5s",
		"max_wait":"1m"}`, body)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	require.Zero(t, runCLI(t, env, "tasks", "submit", "t", "--user", "ada", "--tags", "eu,nightly",
		"--metadata", "order=4711", "--metadata", "shop=a=b", "--trace", trace).code)
	require.JSONEq(t, `{"type":"t","context":{},"user":"ada","tags":["eu","nightly"],
		"metadata":{"order":"4711","shop":"a=b"},"trace":"`+trace+`"}`, body)
	require.Zero(t, runCLI(t, env, "tasks", "submit", "t", "--key", "k", "--key-window",
		"until_final", "--on-conflict", "reject").code)
	require.JSONEq(t, `{"type":"t","context":{},"key":"k","key_window":"until_final",
		"on_conflict":"reject"}`, body)
}

// Submitting a key again reports that nothing new was submitted.
func TestSubmitSaysThatTheTaskExisted(t *testing.T) {
	t.Parallel()
	existing, replaced := true, false
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, client.SubmittedTask{ID: "t.1.7", Type: "t", Status: client.StatusSucceeded,
			Existing: existing, Replaced: replaced})
	})
	for _, wait := range [][]string{nil, {"--output", "json"}} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			r := runCLI(t, env, append([]string{"tasks", "submit", "t", "--key", "k"}, wait...)...)
			require.Equal(t,
				ran{0, r.stdout,
					"asyncflow: the key stands for task t.1.7 already: " +
						"nothing new was submitted\n"}, r)
			require.Contains(t, r.stdout, "t.1.7")
			require.NotContains(t, r.stdout, "0001-01-01")
			require.Equal(t, wait != nil, strings.Contains(r.stdout, `"existing": true`), r.stdout)
		})
	}
	replaced = true
	require.Equal(t, "asyncflow: task t.1.7 has the new context: nothing new was submitted\n",
		runCLI(t, env, "tasks", "submit", "t", "--key", "k").stderr)
	existing, replaced = false, false
	require.Empty(t, runCLI(t, env, "tasks", "submit", "t", "--key", "k").stderr)
}

func TestListPages(t *testing.T) {
	t.Parallel()
	var limits []string
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		limits = append(limits, r.URL.Query().Get("limit"))
		require.Equal(t, "k", r.URL.Query().Get("key"))
		require.Equal(t, "a text", r.URL.Query().Get("text"))
		n := 500
		if r.URL.Query().Get("limit") != "500" {
			n = 100
		}
		answer(w, 200, client.TaskList{Data: make([]client.Task, n), NextCursor: "next"})
	})
	r := runCLI(t, env, "tasks", "list", "--type", "t", "--limit", "600", "--key", "k",
		"--text", "a text", "-o", "json")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, []string{"500", "100"}, limits)
	var doc client.TaskList
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &doc))
	require.Len(t, doc.Data, 600)
	require.Equal(t, "next", doc.NextCursor)
}
