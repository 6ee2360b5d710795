package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// joined is the context of the stage after a fan-out.
type joined struct {
	ResultsURL string `json:"results_url"`
}

// Results that are too long for a context have a whole URL, which the delivery's token opens. The
// caller reads them, too.
func TestResultsURL(t *testing.T) {
	t.Parallel()
	c := claimType(t, "long-results")
	spec := client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "map", Mode: asyncflow.ModeClaim, FanOut: &asyncflow.FanOut{Shards: 6,
			Results: asyncflow.ResultsSettled}},
		{Name: "reduce", Mode: asyncflow.ModeClaim}}}
	_, err := c.PutTaskType(t.Context(), "long-results", spec)
	require.NoError(t, err)
	w := claimWorker(t)
	worker.Handle(w, "long-results", "map", func(context.Context, worker.Task[int]) (string, error) {
		return strings.Repeat("x", 200_000), nil
	})
	worker.Handle(w, "long-results", "reduce",
		func(ctx context.Context, task worker.Task[joined]) (int, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, task.Context.ResultsURL+"&from=2", nil)
			if err != nil {
				return 0, err
			}
			req.Header.Set("Authorization", "Bearer "+task.Callback.Token)
			answer, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0, err
			}
			defer answer.Body.Close()
			var page client.ChildResults
			err = json.NewDecoder(answer.Body).Decode(&page)
			return len(page.Results), err
		})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, stage := range []string{"map", "reduce"} {
		go func() { ended <- w.Claim(ctx, worker.Claims{Client: c}, "long-results", stage) }()
	}
	task, err := c.Submit(t.Context(), client.NewTask{Type: "long-results", Context: client.JSON(`1`)})
	require.NoError(t, err)
	done, err := c.Wait(t.Context(), task.ID, 2*time.Minute)
	require.NoError(t, err)
	assert.Equal(t, "4", string(done.Result), done.Error)
	page, err := c.Results(t.Context(), task.ID, 0)
	require.NoError(t, err)
	require.Len(t, page.Results, 6)
	assert.Len(t, page.Results[5].Output, 200_002)
	stop()
	for range 2 {
		require.NoError(t, <-ended)
	}
	require.NoError(t, w.Close(t.Context()))
}
