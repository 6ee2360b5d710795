package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// Each reason why a task waits is explained, without a gap in the text.
func TestWaitTexts(t *testing.T) {
	t.Parallel()
	contract, err := os.ReadFile("../../openapi.yaml")
	require.NoError(t, err)
	enum := regexp.MustCompile(`(?s)    WaitReason:\n.*?enum: \[(.*?)\]`).FindSubmatch(contract)
	require.NotNil(t, enum)
	for _, reason := range strings.Split(string(enum[1]), ", ") {
		text := waitText(client.Task{ID: "mail.1.7", Type: "mail", Stage: "send",
			Status: client.StatusWaiting, FlowKey: "customer-1", WaitsFor: api.TaskWaitsFor(reason),
			Dependencies: []api.DependencyState{{Task: "mail.1.1"}},
			OrderTime:    time.Now().Add(time.Hour), Error: "500",
			ChildOf:  &api.ChildOf{Parent: "post.1.2"},
			Children: &client.Children{Total: 2}})
		assert.NotContains(t, text, "waits for: ", "%s has no text", reason)
		assert.NotRegexp(t, `[{}]|  |: ;`, text, reason)
		assert.Contains(t, text, "; its last error: 500")
	}
	assert.Equal(t, "is waiting, and waits for: rain", waitText(client.Task{Status: "waiting",
		WaitsFor: "rain"}))
	assert.Regexp(t, `^is running at stage send, until 10:00:00.000 at most: 40% page 3$`,
		regexp.MustCompile(`\d{4}-\d\d-\d\d `).ReplaceAllString(waitText(client.Task{
			Status: client.StatusRunning, Stage: "send",
			Deadline: time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC),
			Progress: api.Progress{Percent: 40, Note: "page 3"}}), ""))
}

// A long wait says once what the task waits for, on standard error.
func TestWaitSaysForWhat(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_TOKEN": node.token()}
	types := writeFile(t, `{types: [{name: pipe, stages: [{name: one}]}]}`)
	require.Zero(t, runCLI(t, env, "types", "apply", "-f", types).code)
	r := runCLI(t, env, "tasks", "submit", "pipe", "--wait", "--timeout", "8s", "-o", "json")
	require.Equal(t, exitNotFinal, r.code, r.stderr)
	assert.Equal(t, 1, strings.Count(r.stderr,
		"waits for an endpoint of stage one: create one with "+
			"asyncflow endpoints create --type pipe --stage one URL, or run asyncflow listen"),
		r.stderr)
	assert.True(t, strings.HasPrefix(r.stdout, "{"), r.stdout)
}
