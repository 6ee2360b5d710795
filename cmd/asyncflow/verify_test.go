package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/workercheck"
	sdk "github.com/asyncflow/asyncflow/worker"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	w := startSDKWorker(t, sdk.Config{})
	sdk.Handle(w.Worker, "pipe", "first", func(_ context.Context, task sdk.Task[counted]) (counted,
		error) {
		return task.Context, nil
	})
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(testWebhook+"\n"), 0o600))
	env := map[string]string{"ASYNCFLOW_URL": closedURL(t)}
	r := runCLI(t, env, "verify", w.url, "--type=pipe", "--stage=first", "--context", `{"n": 1}`,
		"--secret-file", secret, "--allow-http", "--allow-private-networks", "--batch=2")
	require.Zero(t, r.code, r.stdout+r.stderr)
	require.Regexp(t, `(?m)^ok    challenge  +echoed\n`, r.stdout)
	require.Regexp(t, `(?m)^ok    batch  +2 tasks: answered 200 in `, r.stdout)
	require.Regexp(t, `(?m)^n/a   cancel  +answered at once\n`, r.stdout)
	require.Regexp(t, `(?m)^ok    name  +it is \S+\n`, r.stdout)
	require.Regexp(t, `\n\n20 passed, 0 failed, 4 not applicable\n$`, r.stdout)

	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	allowed := []string{"--allow-http", "--allow-private-networks"}
	gullible := serveAPI(t,
		func(w http.ResponseWriter,
			_ *http.Request) {
			answer(w, 200, map[string]any{"output": 1})
		})["ASYNCFLOW_URL"]
	r = runCLI(t, env, append([]string{"verify", gullible, "--type=pipe", "--stage=first"},
		allowed...)...)
	require.Equal(t, exitFailed, r.code)
	require.Empty(t, r.stderr)
	require.Regexp(t,
		`(?m)^FAIL  bad signature  +a delivery that was signed with another secret was answered `+
			`with 200\n +fix: compare `, r.stdout)
	r = runCLI(t, env, append([]string{"verify", gullible, "--type=pipe", "--stage=first", "-o",
		"json"}, allowed...)...)
	require.Equal(t, exitFailed, r.code)
	var report workercheck.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Equal(t, []string{gullible, "pipe", "first"},
		[]string{report.URL, report.Type, report.Stage})
	require.Equal(t, []any{workercheck.Failed, "challenge"},
		[]any{report.Checks[2].Result, report.Checks[2].Name})
	require.Equal(t, 6, report.Failed)
}

// With --on-final, events are sent in place of deliveries.
func TestVerifyOnFinal(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_URL": closedURL(t),
		"ASYNCFLOW_ENDPOINT_SECRET": testWebhook}
	w := startSDKWorker(t, sdk.Config{})
	var told atomic.Int32
	w.HandleFinal(func(context.Context, sdk.FinalEvent) error {
		told.Add(1)
		return nil
	})
	args := []string{"--on-final", "--allow-http", "--allow-private-networks"}
	r := runCLI(t, env, append([]string{"verify", w.url + "/ended"}, args...)...)
	require.Zero(t, r.code, r.stdout+r.stderr)
	require.Regexp(t, `(?m)^ok    the same event again `, r.stdout)
	require.Regexp(t, `\n\n9 passed, 0 failed`, r.stdout)
	require.NotZero(t, told.Load())
	gullible := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{})
	})["ASYNCFLOW_URL"]
	r = runCLI(t, env, append([]string{"verify", gullible}, args...)...)
	require.Equal(t, exitFailed, r.code)
	require.Regexp(t, `(?m)^FAIL  bad signature `, r.stdout)
}

func TestVerifyUsage(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ASYNCFLOW_URL": closedURL(t)}
	for want, args := range map[string]string{
		"ASYNCFLOW_ENDPOINT_SECRET must be": "verify https://w.example.com --type=t --stage=s",
		"url must be https: plain http is off (use --allow-http)": "verify http://w.example.com --type=t " +
			"--stage=s --secret=" + testWebhook,
		"names this machine: use --allow-private-networks": "verify https://localhost --type=t " +
			"--stage=s --secret=" + testWebhook,
		"addresses are not taken (use --allow-private-networks)": "verify http://127.0.0.1:9 --type=t " +
			"--stage=s --allow-http --secret=" + testWebhook,
		"secret must start with whsec_": "verify https://w.example.com --type=t " +
			"--stage=s --secret=x",
		"the context is not valid JSON": "verify https://w.example.com --type=t " +
			"--stage=s --secret=x --context={",
		"--timeout is 0s; it must be above 0": "verify https://w.example.com --type=t " +
			"--stage=s --secret=x --timeout=0s",
		"batch.max_tasks is -1; it must be 1 to 1000": "verify https://w.example.com --type=t " +
			"--stage=s --batch=-1 --secret=" + testWebhook,
		"no such file": "verify https://w.example.com --type=t --stage=s " +
			"--secret-file=/does/not/exist",
		"missing flags: --stage": "verify https://w.example.com --type=t",
	} {
		t.Run(want, func(t *testing.T) {
			r := runCLI(t, env, strings.Fields(args)...)
			require.Equal(t, exitUsage, r.code, "%s: %s", args, r.stderr)
			require.Contains(t, r.stderr, want)
		})
	}
}
