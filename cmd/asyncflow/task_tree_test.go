package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// A tree is applied from a document, watched, paused and resumed by commands.
func TestCLITree(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	run := clientOf(t, node)
	begun, end := make(chan struct{}, 9), make(chan struct{})
	open := sync.OnceFunc(func() { close(end) })
	w := startWorker(t, func(_ http.ResponseWriter, r *http.Request, d delivery) {
		if d.Stage == "map" {
			begun <- struct{}{}
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}
	})
	t.Cleanup(open)
	document := func(failures string) string {
		return writeFile(t, `
types:
  - name: pipe
    stages:
      - name: map
        fan_out: {items: /pages, shared: /options, max_parallel: 2, on_child_failure: `+failures+`}
      - name: reduce
endpoints:
  - {type: pipe, stage: map, url: "`+w.URL+`", secret: "`+testWebhook+`"}
  - {type: pipe, stage: reduce, url: "`+w.URL+`", secret: "`+testWebhook+`"}
`)
	}
	run(0, "types", "apply", "-f", document("all_settled"))
	require.Equal(t, "no difference\n", run(0, "types", "diff", "-f", document("all_settled")))
	require.Equal(t, `~ type pipe
    stages[map].fan_out: {"items":"/pages","shared":"/options","on_child_failure":"all_settled",`+
		`"max_parallel":2} becomes {"items":"/pages","shared":"/options","on_child_failure":`+
		`{"tolerate":{"percent":5}},"max_parallel":2}
`, run(0, "types", "diff", "-f", document("{tolerate: {percent: 5}}")))

	c := node.client()
	task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe",
		Context: client.JSON(`{"pages": [1, 2, 3], "options": {}}`)})
	require.NoError(t, err)
	<-begun
	<-begun
	assert.Contains(t, run(0, "tasks", "pause", task.ID, "--reason", "no disk"), "no disk")
	assert.Regexp(t, `(?s)0 of 3 succeeded, 2 running, 1 waiting.*paused since .*: no disk`,
		run(0, "tasks", "tree", task.ID))
	watched := make(chan string, 1)
	go func() { watched <- run(0, "tasks", "tree", task.ID, "--watch", "--every", "0s") }()
	open()
	require.Eventually(t, func() bool {
		now, err := c.Get(t.Context(), task.ID)
		return err == nil && now.Children.Succeeded == 2
	}, patience, 20*time.Millisecond)
	assert.Len(t, begun, 0, "the third waits")
	assert.NotContains(t, run(0, "tasks", "resume", task.ID), "no disk")
	assert.Contains(t, <-watched, "3 of 3 succeeded")
	assert.Equal(t, "waiting map #1 (children), 2 of 3 succeeded, 1 waiting", taskText(client.Task{
		Status: "waiting", Stage: "map", Attempt: 1, WaitsFor: "children",
		Children: &client.Children{Total: 3, Succeeded: 2, Waiting: 1}}))
	run(exitFailed, "tasks", "pause", task.ID)

	results := run(0, "tasks", "results", task.ID)
	assert.Regexp(t, `^INDEX +STATUS +ID +RESULT\n0 +succeeded +pipe\..*\n1 +.*\n2 +.*\n$`, results)
	some := runCLI(t, map[string]string{"ASYNCFLOW_URL": node.url,
		"ASYNCFLOW_TOKEN": strings.TrimSpace(
			run(0, "token", "create", "--tenant", node.tenant))}, "tasks", "results", task.ID,
		"--from=1",
		"--limit=1")
	assert.Regexp(t, `^INDEX.*\n1 +succeeded.*\n$`, some.stdout)
	assert.Equal(t, "there are more, of 3: --from 2\n", some.stderr)
	var rest client.ChildResults
	require.NoError(t, json.Unmarshal([]byte(run(0, "tasks", "results", task.ID, "--from=2",
		"--limit=0", "-o", "json")), &rest))
	assert.Equal(t, []int{3, 2, 0}, []int{rest.Count, rest.Results[0].Index, rest.Next})
	run(exitUsage, "tasks", "results", task.ID, "--limit=-1")
	run(exitNotFound, "tasks", "results", "pipe.1.999999")
}

// A redrive runs failed children again; with --all-children it runs all children again.
func TestCLIRedriveAllChildren(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	run := clientOf(t, node)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if string(d.Context) == `"bad"` {
			rw.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	run(0, "types", "apply", "-f", writeFile(t, `
types:
  - name: pipe
    retry: {max_attempts: 1}
    stages: [{name: map, fan_out: {items: "", max_parallel: 1}}]
endpoints: [{type: pipe, stage: map, url: "`+w.URL+`", secret: "`+testWebhook+`"}]
`))
	c := node.client()
	task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe",
		Context: client.JSON(`["a","b","bad"]`)})
	require.NoError(t, err)
	delivered := 0
	requireDelivered := func(want ...string) {
		t.Helper()
		done, _ := ended(t, c, task.ID)
		require.Equal(t, client.StatusFailed, done.Status)
		require.Equal(t, &client.Children{Total: 3, Succeeded: 2, Failed: 1}, done.Children)
		var got []string
		for _, d := range w.deliveries()[delivered:] {
			got = append(got, string(d.Context))
		}
		delivered += len(got)
		require.Equal(t, want, got)
	}
	requireDelivered(`"a"`, `"b"`, `"bad"`)
	run(0, "tasks", "redrive", task.ID)
	requireDelivered(`"bad"`)
	run(0, "tasks", "redrive", task.ID, "--all-children")
	requireDelivered(`"a"`, `"b"`, `"bad"`)
	list, err := c.List(t.Context(), client.ListParams{Type: "pipe"})
	require.NoError(t, err)
	require.Len(t, list.Data, 1+2*3, "they are new children")

	// Lists and counts are of tasks without children unless these are asked for; changes of many
	// are of all.
	for args, n := range map[string]int{
		"":                    1,
		"--children":          1 + 2*3,
		"--status failed":     1,
		"--parent " + task.ID: 2 * 3, // of both fan-outs
	} {
		flags := append([]string{"--type", "pipe"}, strings.Fields(args)...)
		ids := run(0, append([]string{"tasks", "list"}, flags...)...)
		require.Equal(t, 1+n, strings.Count(ids, "\n"), "%s: %s", args, ids)
		require.Equal(t, plural(int64(n))+"\n",
			run(0, append([]string{"tasks", "count"}, flags...)...))
	}
	require.Equal(t, "1 task\n", run(0, "tasks", "count", "--type", "pipe", "--exact"))
	require.Equal(t, "7 tasks\n", run(0, "tasks", "count", "--type", "pipe", "--exact",
		"--children"))
	redrive := []string{"tasks", "redrive", "--type", "pipe", "--dry-run"}
	require.Equal(t, "3 tasks\n", run(0, redrive...))
	require.Equal(t, "1 task\n", run(0, append(redrive, "--no-children")...))
	_, err = c.List(t.Context(), client.ListParams{Type: "pipe", Parent: task.ID,
		Children: new(bool)})
	require.ErrorContains(t, err, "children is false, but parent asks for children")
	require.Equal(t, 1, strings.Count(run(0, "tasks", "tree", task.ID), "├─"),
		"the children that failed of the latest fan-out")

	assert.Contains(t, runCLI(t, map[string]string{}, "tasks", "redrive", "--type", "pipe",
		"--all-children").stderr, "they are for one task")
}

// The tree of a task lists its children of all types, and counts the tasks below each. The tree
// of a child lists the children of that child.
func TestCLIJoinedTree(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	run := clientOf(t, node)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		tasks := map[string]string{"pages": `{"type":"page","context":1}`, "split": `
			{"type":"chapter","context":1},{"type":"index","context":2},{"type":"chapter","context":3}`,
		}[d.Stage]
		if tasks != "" {
			rw.Header().Set("Content-Type", "application/json")
			_, err := fmt.Fprintf(rw, `{"spawn":[%s],"join":true}`, tasks)
			assert.NoError(t, err)
		}
	})
	endpoint := func(name, stage string) string {
		return "  - {type: " + name + ", stage: " + stage + `, url: "` + w.URL + `", secret: "` +
			testWebhook + `"}` + "\n"
	}
	run(0, "types", "apply", "-f", writeFile(t, `
types:
  - {name: book, stages: [{name: split, spawn: [chapter, index]}]}
  - {name: chapter, stages: [{name: pages, spawn: [page]}]}
  - {name: index, stages: [{name: sort}]}
  - {name: page, stages: [{name: print}]}
endpoints:
`+endpoint("book", "split")+endpoint("chapter", "pages")))
	c := node.client()
	book, err := c.Submit(t.Context(), client.NewTask{Type: "book", Context: client.JSON(`1`)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := c.Get(t.Context(), book.ID)
		if err != nil || now.Tree == nil || now.Tree.Total < 5 || now.Children.Waiting < 3 {
			return false
		}
		pages, err := c.List(t.Context(), client.ListParams{Type: "page"})
		return err == nil && len(pages.Data) == 2 // tasks that are still to be made are in totals
	}, patience, 20*time.Millisecond)
	tree := run(0, "tasks", "tree", book.ID)
	assert.Regexp(t, `^book\.\S+  waiting split #1 \(children\), 0 of 3 succeeded, 3 waiting
  \[░+\]  0 of 3 succeeded, 3 waiting
  tree 2 levels, 0 of 5 succeeded
  ├─ chapter\.\S+  waiting pages #1 \(children\)
  ├─ chapter\.\S+  waiting pages #1 \(children\)
  ├─ index\.\S+  waiting sort #1 \(endpoint\)
$`, tree)
	assert.Equal(t, 1, strings.Count(run(0, "tasks", "tree", book.ID, "--limit=1"), "├─"))
	assert.Equal(t, 3, strings.Count(run(0, "tasks", "tree", book.ID, "--limit=3"), "├─"))
	chapter := strings.Fields(tree[strings.Index(tree, "├─"):])[1]
	below := run(0, "tasks", "tree", chapter)
	assert.Regexp(t, `^`+chapter+`  waiting pages #1 [^├]*  ├─ page\.\S+  waiting print #1 .*\n$`,
		below)
	assert.NotContains(t, below, "levels")
	page := strings.Fields(below[strings.Index(below, "├─"):])[1]
	assert.Equal(t, below, run(0, "tasks", "tree", page), "the tree is its parent's")

	run(0, "types", "apply", "-f", writeFile(t, "endpoints:\n"+endpoint("index", "sort")+
		endpoint("page", "print")))
	done := run(0, "tasks", "get", book.ID, "--wait", patience.String())
	assert.Regexp(t, `(?m)^children +3 of 3 succeeded$`, done)
	assert.Regexp(t, `(?m)^tree +2 levels, 5 of 5 succeeded$`, done)
	assert.Regexp(t, `(?m)^started +2 chapter, 1 index \(`, done)
}
