package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// A node is killed while a tree spawns, and another while its last children end: each item is
// delivered, each child is settled once, and the next stage gets all results, once.
func TestTreeSurvivesKills(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	size := longform.Size(1200, 10000) // more than are in a chunk
	url := database(t)
	last := startNode(t, url, "--roles=api,governance")
	first := startNode(t, url)
	var mu sync.Mutex
	var second *process
	var spawning, joining sync.Once
	delivered := map[int]int{} // by item
	var joined []json.RawMessage
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		mu.Lock()
		defer mu.Unlock()
		if d.Stage == "reduce" {
			joined = append(joined, d.Context)
			answer(rw, 200, map[string]any{"output": "whole"})
			return
		}
		var item int
		assert.NoError(t, json.Unmarshal(d.Context, &item))
		delivered[item]++
		if len(delivered) == 1 { // there are more chunks to come
			spawning.Do(first.kill)
		}
		if len(delivered) >= size-50 && second != nil { // others are under way
			joining.Do(second.kill)
		}
		answer(rw, 200, map[string]any{"output": item})
	})
	stage := client.Stage{Name: "map", Timeout: asyncflow.NewDuration(time.Second),
		Retry:  asyncflow.RetryPolicy{MaxAttempts: 100, Interval: asyncflow.Seconds(-0.1)},
		FanOut: &asyncflow.FanOut{Items: "/items"}}
	reduce := stage
	reduce.Name, reduce.FanOut = "reduce", nil
	w.pipe(t, last.client(), client.TaskTypeSpec{Stages: []client.Stage{stage, reduce}})
	items := make([]int, size)
	for i := range items {
		items[i] = i
	}
	doc, err := json.Marshal(map[string]any{"items": items})
	require.NoError(t, err)
	begun := time.Now()
	task, err := last.client().Submit(t.Context(), client.NewTask{Type: "pipe", Context: doc})
	require.NoError(t, err)
	first.wait()
	next := startNode(t, url)
	mu.Lock()
	second = next
	mu.Unlock()
	next.wait()
	startNode(t, url)
	done, err := last.client().Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	require.Equal(t, client.StatusSucceeded, done.Status, "%+v", done)
	assert.Equal(t, &client.Children{Total: size, Succeeded: size}, done.Children)
	assert.Equal(t, `"whole"`, string(done.Result))

	mu.Lock()
	defer mu.Unlock()
	assert.Len(t, delivered, size)
	require.NotEmpty(t, joined)
	for _, got := range joined { // the delivery may be repeated, the join not
		var results struct {
			Count, Succeeded int
			Results          []int
		}
		require.NoError(t, json.Unmarshal(got, &results))
		assert.Equal(t, []int{size, size}, []int{results.Count, results.Succeeded})
		assert.Equal(t, items, results.Results)
	}
	requireOneEndEach(t, url, size)
	t.Logf("%d children, %d deliveries of them, %v", size, sum(delivered), time.Since(begun))
}

// The node that answers a cancel is killed at once, and the other one goes on: no child begins
// that had not begun when the first ones were cancelled, and all end.
func TestCancelledTreeSurvivesAKill(t *testing.T) {
	t.Parallel()
	const parallel = 20
	size := longform.Size(1200, 3000)
	url := database(t)
	answers, other := startNode(t, url), startNode(t, url)
	var mu sync.Mutex
	begun := map[string]bool{} // by task
	full, end := make(chan struct{}), make(chan struct{})
	open, fill := sync.OnceFunc(func() { close(end) }), sync.OnceFunc(func() { close(full) })
	w := startWorker(t, func(_ http.ResponseWriter, r *http.Request, d delivery) {
		mu.Lock()
		if begun[d.ID] = true; len(begun) == parallel {
			fill() // and no other child is on its way
		}
		mu.Unlock()
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(open)
	w.pipe(t, answers.client(), client.TaskTypeSpec{Stages: []client.Stage{{Name: "map",
		FanOut: &asyncflow.FanOut{Shards: size}, Timeout: client.NewDuration(10 * time.Second),
		Retry: client.RetryPolicy{MaxAttempts: 100, Interval: client.Seconds(-0.1)}}},
		MaxInFlight: parallel})
	c := other.client()
	task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: client.JSON(`1`)})
	require.NoError(t, err)
	<-full
	_, err = answers.client().Cancel(t.Context(), task.ID, "")
	require.NoError(t, err)
	answers.kill()
	open()
	answers.wait()
	children := func(enough func(client.Children) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			now, err := c.Get(t.Context(), task.ID)
			return err == nil && now.Children != nil && enough(*now.Children)
		}, patience, 20*time.Millisecond)
	}
	children(func(now client.Children) bool { return now.Cancelled > 0 })
	mu.Lock()
	n := len(begun)
	mu.Unlock()
	children(func(now client.Children) bool {
		return now.Succeeded+now.Failed+now.Cancelled == size
	})
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, n, len(begun), "children have begun")
}

func sum(counts map[int]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// requireOneEndEach checks that there is one final row of each child, and of its parent, and that
// the parent joined once.
func requireOneEndEach(t *testing.T, url string, children int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var ends, tasks, joins, left int
	require.NoError(t, conn.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE final IS NOT NULL), count(DISTINCT id),
		  count(*) FILTER (WHERE outcome = 'joined'),
		  (SELECT count(*) FROM tenant_acme.outbox) + (SELECT count(*) FROM tenant_acme.wait)
		FROM tenant_acme.journal_1`).Scan(&ends, &tasks, &joins, &left))
	assert.Equal(t, []int{children + 1, children + 1, 1, 0}, []int{ends, tasks, joins, left})
}

// send sends a body to the API as it is, and returns the answer.
func (p *process) send(method, path, body string) (status int, answer string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path,
		strings.NewReader(body))
	require.NoError(p.t, err)
	req.Header.Set("Authorization", "Bearer "+p.token())
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(read)
}

// A stage with its items at "" fans out over the context itself: each child gets one item, byte for
// byte, and the next stage gets their results.
func TestTheContextIsTheItems(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		rw.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(rw, `{"output":`+string(d.Context)+`}`)
		assert.NoError(t, err)
	})
	status, answer := node.send("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"map","fan_out":{"items":""}},{"name":"reduce"}]}`)
	require.Equal(t, http.StatusCreated, status, answer)
	assert.Contains(t, answer, `"fan_out":{"items":""}`)
	c := node.client()
	for _, stage := range []string{"map", "reduce"} {
		_, err := c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "pipe", Stage: stage,
			URL: w.URL, Secret: testWebhook})
		require.NoError(t, err)
	}
	items := []string{`1.0`, `{"b":  "\u00e9", "a": [ ]}`, `"x"`, `true`}
	status, answer = node.send("POST", "/v1/tasks",
		`{"type":"pipe","context": [ `+strings.Join(items, " ,\n")+` ]}`)
	require.Equal(t, http.StatusCreated, status, answer)
	var task client.SubmittedTask
	require.NoError(t, json.Unmarshal([]byte(answer), &task))

	done, outcomes := ended(t, c, task.ID)
	require.Equal(t, "map fanned_out, map joined, reduce done", outcomes, done.Error)
	assert.Equal(t, &client.Children{Total: 4, Succeeded: 4}, done.Children)
	var got, reduced []string
	for _, d := range w.deliveries() {
		if d.Stage == "map" {
			got = append(got, string(d.Context))
		} else {
			reduced = append(reduced, string(d.Context))
		}
	}
	assert.ElementsMatch(t, items, got)
	assert.Equal(t, []string{`{"count":4,"succeeded":4,"failed":0,"cancelled":0,"results":[` +
		strings.Join(items, ",") + `]}`}, reduced)
}
