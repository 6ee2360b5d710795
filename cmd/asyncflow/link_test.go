package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A whole node: a task asks by links, and goes on with what somebody decides by one of them.
func TestCLILinks(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	links := make(chan map[string]string, 1)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if d.Stage == "ask" {
			links <- d.Links["review"]
		}
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
	doc := func(links string) string {
		return writeFile(t, `{types: [{name: orders, stages: [{name: ask}, {name: review, mode: wait,
			wait: {signal: reviewed, timeout: 72h, links: `+links+`}}, {name: ship}]}]}`)
	}
	const three = `{decisions: [yes_please, no, later], summary: /ask}`
	run(0, "types", "apply", "-f", doc("true"))
	require.Contains(t, run(0, "types", "diff", "-f", doc("true")).stdout, "no difference")
	require.Regexp(t, `review .*reviewed +72h +fail +approve,reject`,
		run(0, "types", "get", "orders").stdout)
	require.Contains(t, run(0, "types", "diff", "-f", doc(three)).stdout, "yes_please")
	run(0, "types", "apply", "-f", doc(three))
	require.Contains(t, run(0, "types", "diff", "-f", doc(three)).stdout, "no difference")
	require.Contains(t, run(2, "types", "apply", "-f", doc("{decisions: [No]}")).stderr,
		"wait.links.decisions[0]")
	for _, stage := range []string{"ask", "ship"} {
		run(0, "endpoints", "create", "--type", "orders", "--stage", stage, w.URL+"/"+stage)
	}
	var task struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "submit", "orders", `1`, "-o",
		"json").stdout), &task))
	given := <-links
	require.Len(t, given, 3)
	require.Eventually(t, func() bool {
		return strings.Contains(run(0, "tasks", "get", task.ID).stdout,
			", by links: yes_please, no, later")
	}, patience, 1)
	resp, err := http.PostForm(given["later"], url.Values{"by": {"Anna"}})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	run(0, "tasks", "get", task.ID, "--wait", "1m")
	require.Regexp(t, `\{"ship":\{"decision":"later","by":"Anna","at":"20[0-9TZ:-]+"\}\}`,
		run(0, "tasks", "get", task.ID).stdout)
}
