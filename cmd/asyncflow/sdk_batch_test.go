package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// Tasks of an endpoint with batches come to a worker together, each with its own outcome, both
// for a handler of single tasks and for one of batches.
func TestSDKBatch(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	registration := sdk.Registration{Client: c,
		Prepare: func(e *client.NewEndpoint) {
			e.Batch = fiveTogether()
			e.Batch.MaxWait = client.NewDuration(time.Second) // nothing for the sixth to wait for
		}}
	w := startSDKWorker(t, sdk.Config{Registration: &registration})
	registration.URL = w.url
	work := func(task sdk.Task[int]) (int, error) {
		switch {
		case task.Context == 1:
			return 0, sdk.Fail(errors.New("one is bad"))
		case task.Context == 2 && task.Attempt == 1:
			return 0, errors.New("not yet")
		}
		return task.Context, nil
	}
	sdk.Handle(w.Worker, "pipe", "each", func(_ context.Context, task sdk.Task[int]) (int,
		error) {
		return work(task)
	})
	var mu sync.Mutex
	var sizes []int
	sdk.HandleBatch(w.Worker, "pipe", "together",
		func(_ context.Context, tasks []sdk.Task[int]) []sdk.Result[int] {
			mu.Lock()
			sizes = append(sizes, len(tasks))
			mu.Unlock()
			results := make([]sdk.Result[int], len(tasks))
			for i, task := range tasks {
				results[i].Output, results[i].Err = work(task)
			}
			return results
		})
	slow := make(chan struct{})
	sdk.Handle(w.Worker, "pipe", "slow", func(_ context.Context, task sdk.Task[int]) (int, error) {
		if task.Context == 3 {
			<-slow // it is accepted and reported later, so the others don't wait for it
		}
		return task.Context, nil
	}, sdk.AnswerWithin(time.Millisecond))
	_, err := c.PutTaskType(t.Context(), "pipe",
		client.TaskTypeSpec{Stages: []client.Stage{stage("each"), stage("together"),
			stage("slow")}})
	require.NoError(t, err)
	require.NoError(t, w.Register(t.Context(), registration))
	ids := submitMany(t, c, 6)
	for _, i := range []int{0, 1, 2, 4, 5, 3} {
		if i == 3 {
			close(slow)
		}
		task, outcomes := ended(t, c, ids[i])
		want := "each done, together done, slow done"
		switch i {
		case 1:
			want = "each rejected"
		case 2:
			want = "each failed, each done, together failed, together done, slow done"
		default:
			assert.Equal(t, fmt.Sprint(i), string(task.Result))
		}
		assert.Equal(t, want, outcomes, i)
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Greater(t, slices.Max(sizes), 1)
}
