package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// batchWorker is a worker that gets several tasks in a request, and records them.
type batchWorker struct {
	*httptest.Server
	mu       sync.Mutex
	requests [][]delivery
}

// startBatchWorker serves a handler; each request's signature is verified first.
func startBatchWorker(
	t *testing.T, handle func(rw http.ResponseWriter, r *http.Request, all []delivery),
) *batchWorker {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(testWebhook)
	require.NoError(t, err)
	w := &batchWorker{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var got struct{ Deliveries []delivery }
		err := readSigned(webhook, r, "DeliveryBatch", &got)
		if err != nil || len(got.Deliveries) == 0 {
			t.Errorf("a bad request: %v", err)
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		w.mu.Lock()
		w.requests = append(w.requests, got.Deliveries)
		w.mu.Unlock()
		handle(rw, r, got.Deliveries)
	}))
	t.Cleanup(w.Close)
	return w
}

// pipe registers the worker for the one stage of a task type.
func (w *batchWorker) pipe(
	t *testing.T, c *client.Client, spec client.TaskTypeSpec, batch client.EndpointBatch,
) {
	t.Helper()
	_, err := c.PutTaskType(t.Context(), "pipe", spec)
	require.NoError(t, err)
	_, err = c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "pipe",
		Stage: spec.Stages[0].Name,
		URL:   w.URL, Secret: testWebhook, Batch: batch})
	require.NoError(t, err)
}

// answerEach answers with the results that result returns; tasks without one are left out.
func answerEach(rw http.ResponseWriter, all []delivery, result func(delivery) map[string]any) {
	results := []map[string]any{}
	for _, d := range all {
		if r := result(d); r != nil {
			r["task_id"] = d.ID
			results = append(results, r)
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	json.NewEncoder(rw).Encode(map[string]any{"results": results})
}

func fiveTogether() client.EndpointBatch {
	return client.EndpointBatch{MaxTasks: 5, MaxWait: asyncflow.NewDuration(5 * time.Second)}
}

// complete reports a task as done.
func complete(t *testing.T, d delivery) {
	req, _ := http.NewRequest("POST", d.Callback.URL+"/complete",
		bytes.NewReader([]byte(`{"output":"later"}`)))
	req.Header.Set("Authorization", "Bearer "+d.Callback.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if assert.NoError(t, err) {
		assert.Equal(t, 200, resp.StatusCode)
		resp.Body.Close()
	}
}

// The outcome of each task of a request is its own: done, accepted and completed later, failed for
// good, cancelled, and retried, as the answer doesn't list it.
func TestBatchDelivery(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	later := make(chan delivery, 1)
	w := startBatchWorker(t, func(rw http.ResponseWriter, _ *http.Request, all []delivery) {
		answerEach(rw, all, func(d delivery) map[string]any {
			switch string(d.Context) {
			case "1":
				later <- d
				return map[string]any{"outcome": "accepted"}
			case "2":
				return map[string]any{"outcome": "fail", "error": "no such image"}
			case "3":
				return map[string]any{"outcome": "cancel", "error": "not needed"}
			case "4":
				if d.Attempt == 1 {
					return nil
				}
			}
			return map[string]any{"output": map[string]any{"was": d.Context}}
		})
	})
	c := p.client()
	spec := oneStage()
	w.pipe(t, c, spec, fiveTogether())
	ids := submitMany(t, c, 5)
	accepted := <-later
	final := func(i int, status asyncflow.Status) (client.Task, []client.Attempt) {
		task, err := c.Wait(t.Context(), ids[i], patience)
		require.NoError(t, err)
		require.Equal(t, status, task.Status, "task %d", i)
		attempts, err := c.Attempts(t.Context(), ids[i])
		require.NoError(t, err)
		return task, attempts
	}
	task, attempts := final(0, asyncflow.StatusSucceeded)
	assert.JSONEq(t, `{"was":0}`, string(task.Result))
	require.Len(t, attempts, 1)
	assert.Equal(t, []any{w.URL, 200}, []any{attempts[0].Endpoint, attempts[0].StatusCode})
	_, attempts = final(2, asyncflow.StatusFailed)
	assert.Equal(t, "no such image", attempts[0].Error)
	_, attempts = final(3, asyncflow.StatusCancelled)
	assert.Equal(t, "not needed", attempts[0].Error)
	_, attempts = final(4, asyncflow.StatusSucceeded)
	require.Len(t, attempts, 2)
	assert.Equal(t, "the answer has no result for this task", attempts[0].Error)

	running, err := c.Get(t.Context(), ids[1])
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusRunning, running.Status)
	complete(t, accepted)
	task, _ = final(1, asyncflow.StatusSucceeded)
	assert.Equal(t, `"later"`, string(task.Result))
	var events []string
	for event, err := range c.Watch(t.Context(), ids[4]) {
		require.NoError(t, err)
		if event.Attempt != nil {
			events = append(events, string(event.Attempt.Outcome))
		}
	}
	assert.Equal(t, []string{"failed", "done"}, events)
	require.Len(t, w.requests, 2)
	assert.Len(t, w.requests[0], 5, "they went in one request")
	assert.Len(t, w.requests[1], 1, "and the one that was tried again in a request of the same "+
		"form")
}

// 202 accepts all tasks of a request, and any other status applies to all.
func TestBatchAnsweredAsAWhole(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	w := startBatchWorker(t, func(rw http.ResponseWriter, _ *http.Request, all []delivery) {
		if all[0].Attempt == 1 {
			http.Error(rw, "out of order", http.StatusInternalServerError)
			return
		}
		rw.WriteHeader(http.StatusAccepted)
		for _, d := range all {
			go complete(t, d)
		}
	})
	c := p.client()
	w.pipe(t, c, oneStage(), fiveTogether())
	ids := submitMany(t, c, 5)
	awaitAll(t, c, ids)
	for _, id := range ids {
		attempts, err := c.Attempts(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, attempts, 2)
		assert.Equal(t, []any{500, "500 Internal Server Error: out of order"},
			[]any{attempts[0].StatusCode, attempts[0].Error})
	}
}

// A request without an answer in time fails for all of its tasks. A node that is killed with a
// request in flight, or with tasks that wait for others, leaves leases that expire.
func TestBatchWithoutAnswer(t *testing.T) {
	t.Parallel()
	url := database(t)
	a := startNode(t, url)
	hang := make(chan struct{})
	w := startBatchWorker(t, func(rw http.ResponseWriter, r *http.Request, all []delivery) {
		if all[0].Attempt < 3 {
			if all[0].Attempt == 2 {
				hang <- struct{}{}
			}
			<-r.Context().Done()
			return
		}
		answerEach(rw, all, func(delivery) map[string]any { return map[string]any{} })
	})
	spec := briefStage()
	w.pipe(t, a.client(), spec, client.EndpointBatch{MaxTasks: 5,
		MaxWait: asyncflow.NewDuration(time.Second)})
	ids := submitMany(t, a.client(), 7) // two of them wait for others
	<-hang
	a.halt(syscall.SIGKILL)
	b := startNode(t, url)
	go func() {
		for range hang {
		}
	}()
	defer close(hang)
	awaitAll(t, b.client(), ids)
	for n, id := range ids {
		attempts, err := b.client().Attempts(t.Context(), id)
		require.NoError(t, err)
		if n < 5 {
			assert.Equal(t, "no answer within 1s", attempts[0].Error)
		}
		finals := 0
		for i, attempt := range attempts {
			assert.Equal(t, i+1, attempt.Seq, "the fence only grows")
			if attempt.Final != "" {
				finals++
			}
		}
		assert.Equal(t, 1, finals, "exactly one attempt ends a task")
	}
}
