package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// Results that are too long for a context are at a whole URL, which the delivery's token opens. The
// caller reads them, too.
func TestResultsURL(t *testing.T) {
	t.Parallel()
	c := claimType(t, "long-results")
	spec := client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "map", Mode: asyncflow.ModeClaim, FanOut: &asyncflow.FanOut{Shards: 24,
			Results: asyncflow.ResultsSettled}},
		{Name: "reduce", Mode: asyncflow.ModeClaim}}}
	_, err := c.PutTaskType(t.Context(), "long-results", spec)
	require.NoError(t, err)
	w := claimWorker(t)
	worker.Handle(w, "long-results", "map",
		func(context.Context, worker.Task[int]) (string, error) {
			return strings.Repeat("x", 200_000), nil
		})
	worker.Handle(w, "long-results", "reduce",
		func(ctx context.Context, task worker.Task[worker.Joined]) ([]int, error) {
			assert.NotEmpty(t, task.Context.ResultsURL)
			task.Context.ResultsURL = strings.Replace(task.Context.ResultsURL, "127.0.0.1",
				"evil.example", 1)
			var all []int
			for result, err := range worker.Settled(ctx, task) {
				if err != nil {
					return nil, err
				}
				assert.Equal(t, asyncflow.StatusSucceeded, result.Status)
				all = append(all, result.Index*1000_000+len(result.Output))
			}
			for output, err := range worker.Outputs[string](ctx, task) {
				if err != nil {
					return nil, err
				}
				all = append(all, len(output))
			}
			for range worker.Outputs[string](ctx, task) {
				break
			}
			for _, err := range worker.Outputs[int](ctx, task) {
				assert.Error(t, err)
			}
			return all, nil
		})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, stage := range []string{"map", "reduce"} {
		go func() { ended <- w.Claim(ctx, worker.Claims{Client: c}, "long-results", stage) }()
	}
	task, err := c.Submit(t.Context(), client.NewTask{Type: "long-results",
		Context: client.JSON(`1`)})
	require.NoError(t, err)
	done, err := c.Wait(t.Context(), task.ID, 2*time.Minute)
	require.NoError(t, err)
	assert.JSONEq(t, `[200002,1200002,2200002,3200002,4200002,5200002,6200002,7200002,8200002,9200002,10200002,11200002,12200002,13200002,14200002,15200002,16200002,
		17200002,18200002,19200002,20200002,21200002,22200002,23200002,`+
		strings.Repeat("200000,", 23)+`200000]`, string(done.Result), done.Error)
	page, err := c.Results(t.Context(), task.ID, 0)
	require.NoError(t, err)
	require.Less(t, 5, page.Next, "the results have two pages")
	assert.Len(t, page.Results[5].Output, 200_002)
	stop()
	for range 2 {
		require.NoError(t, <-ended)
	}
	require.NoError(t, w.Close(t.Context()))
}

// Short results are in the context itself; no address in a context gets the token.
func TestResultsInTheContext(t *testing.T) {
	t.Parallel()
	read := func(joined worker.Joined) (outputs []string, settled []client.ChildResult, err error) {
		task := worker.Task[worker.Joined]{Context: joined, Callback: worker.Callback{
			URL: "http://127.0.0.1:1/v1/callbacks/a.1.1/1", Token: "t"}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for output, failure := range worker.Outputs[*string](ctx, task) {
			if failure != nil {
				return outputs, settled, failure
			}
			if output == nil {
				output = new("none")
			}
			outputs = append(outputs, *output)
		}
		for result, failure := range worker.Settled(ctx, task) {
			if failure != nil {
				return outputs, settled, failure
			}
			settled = append(settled, result)
		}
		return outputs, settled, nil
	}
	plain := func(docs ...string) (all worker.Joined) {
		for _, doc := range docs {
			all.Results = append(all.Results, json.RawMessage(doc))
		}
		return all
	}
	outputs, _, err := read(plain(`"a"`, `null`))
	assert.Equal(t, []string{"a", "none"}, outputs)
	assert.Error(t, err, "these are no settled results")
	_, settled, err := read(worker.Joined{})
	require.NoError(t, err)
	assert.Empty(t, settled)
	task := worker.Task[worker.Joined]{Context: plain(`{"index":1,"status":"failed","error":"no"}`)}
	for result, err := range worker.Settled(t.Context(), task) {
		require.NoError(t, err)
		assert.Equal(t, client.ChildResult{Index: 1, Status: asyncflow.StatusFailed, Error: "no"},
			result)
	}
	for _, stored := range []string{"https://evil.example/", "https://evil.example/v1/tasks/a.1.1",
		"::",
		"https://evil.example/v1/tasks/../../evil/results", "/v1/tasks/%2e%2e/results"} {
		_, _, err := read(worker.Joined{ResultsURL: stored})
		require.ErrorContains(t, err, "results_url", stored)
	}
}
