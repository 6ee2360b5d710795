package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// callback calls a delivery's callback as its worker.
func callback(t *testing.T, d delivery, call, body string) {
	req, err := http.NewRequest("POST", d.Callback.URL+"/"+call, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+d.Callback.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
}

// A task is watched while its worker works: one stage reports after its 202, the other before
// its answer. Both are shown with their endpoint.
func TestTasksWatch(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	accepted := make(chan delivery, 1)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if d.Stage == "two" {
			callback(t, d, "complete", `{"output": "end"}`)
		}
		rw.WriteHeader(http.StatusAccepted)
		if d.Stage == "one" {
			accepted <- d
		}
	})
	c := node.client()
	w.pipe(t, c, client.TaskTypeSpec{Stages: []client.Stage{{Name: "one"}, {Name: "two"}}})
	task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: client.JSON("1"),
		Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)

	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_TOKEN": node.token()}
	out, into := io.Pipe()
	code := make(chan int, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		code <- realMain(ctx, []string{"tasks", "watch", task.ID}, into, io.Discard,
			func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		into.Close()
	}()
	lines := bufio.NewScanner(out)
	// shows waits for a line; other lines, such as for a heartbeat or a running stage, may come
	// first.
	shows := func(pattern string) {
		t.Helper()
		for lines.Scan() {
			require.Regexp(t, `^(\S+ )?\d\d:\d\d:\d\d\.\d{3}  \S`, lines.Text())
			if regexp.MustCompile(pattern).MatchString(lines.Text()) {
				return
			}
		}
		t.Fatalf("no line is like %s", pattern)
	}
	shows(`waiting one #1`)
	_, err = c.Change(t.Context(), task.ID, client.TaskPatch{Delay: new(client.Duration)})
	require.NoError(t, err)
	shows(`running one #1 until \d\d:\d\d:\d\d`)
	d := <-accepted
	callback(t, d, "progress", `{"percent": 40, "note": "page\u001b[31m 12"}`)
	shows(`running one #1 until .*, 40% page�\[31m 12$`)
	callback(t, d, "complete", ``)
	shows(`one #1 done in `)
	shows(`two #1 done in `)
	shows(`succeeded$`)
	require.False(t, lines.Scan(), lines.Text())
	require.Zero(t, <-code)

	attempts, err := c.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	require.Len(t, attempts, 3, "the change of its time is one")
	for _, a := range attempts[1:] {
		require.Equal(t, w.URL, a.Endpoint, a.Stage)
	}
	failed := serveAPI(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw,
			"event: task\ndata: "+
				"{\"id\":\"t.1.1\",\"status\":\"failed\",\"error\":\"no\\nmore\","+
				"\"finished_at\":\"2026-01-02T03:04:05Z\"}\n\n")
	})
	require.Equal(t, ran{exitTaskFailed, "2026-01-02 03:04:05.000  failed: no more\n", ""},
		runCLI(t, failed, "tasks", "watch", "t.1.1"))
	require.Equal(t, exitNotFound, runCLI(t, env, "tasks", "watch", "pipe.1.999999").code)
	require.Equal(t, exitUnavailable, runCLI(t, map[string]string{"ASYNCFLOW_URL": closedURL(t)},
		"tasks", "watch", "t.1.1").code)
}

func TestWatchTexts(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]client.Attempt{
		"inspect #1 done in 35ms": {Stage: "inspect", Attempt: 1, Outcome: "done",
			DurationMs: 35.2},
		"inspect #1 done in 3.2ms": {Stage: "inspect", Attempt: 1, Outcome: "done",
			DurationMs: 3.21},
		"resize #12 failed in 1m1.5s: busy": {Stage: "resize", Attempt: 12, Outcome: "failed",
			DurationMs: 61500, Error: "busy"},
		`resize #1 changed: priority none becomes 60, retry {"max_attempts":5} becomes none`: {
			Stage: "resize", Attempt: 1, Outcome: "changed", Changes: []client.OptionChange{
				{Field: "priority", After: client.JSON(`60`)},
				{Field: "retry", Before: client.JSON(`{"max_attempts":5}`)}}},
		"resize #2 lost": {Stage: "resize", Attempt: 2, Outcome: "lost"},
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, attemptText(a))
		})
	}
	for want, d := range map[string]time.Duration{
		"0s":      300 * time.Millisecond,
		"47h0m0s": 47 * time.Hour,
		"2d":      48 * time.Hour,
		"30d1m0s": 30*24*time.Hour + time.Minute,
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, longText(d))
		})
	}
	soon := now().Add(48 * time.Hour).UTC()
	at := soon.Format("2006-01-02 15:04:05.000")
	for want, task := range map[string]client.Task{
		"pending a #1": {Status: "pending", Stage: "a", Attempt: 1,
			OrderTime: now().Add(-time.Hour)},
		"waiting a #2 (retry), due " + at: {Status: "waiting", Stage: "a", Attempt: 2,
			WaitsFor: "retry", OrderTime: soon},
		"running a #2 until " + at + ", 7%": {Status: "running", Stage: "a", Attempt: 2,
			Deadline: soon},
		"running a #2 until " + at + ", 0% hm": {Status: "running", Stage: "a", Attempt: 2,
			Deadline: soon},
		"succeeded":         {Status: "succeeded"},
		"cancelled: enough": {Status: "cancelled", Error: "enough"},
	} {
		t.Run(want, func(t *testing.T) {
			switch {
			case strings.HasSuffix(want, "7%"):
				task.Progress.Percent = 7
			case strings.HasSuffix(want, "hm"):
				task.Progress.Note = "hm"
			}
			require.Equal(t, want, taskText(task))
		})
	}
}
