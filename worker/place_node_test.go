package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/testnode"
	"github.com/asyncflow/asyncflow/worker"
)

// A task that a named worker took shows where it runs: at which endpoint, node and worker, since
// when and until when, with its last heartbeat and progress. Its attempt keeps node and worker, and
// the filter by the worker finds it.
func TestANodeShowsWhereATaskRuns(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	name := fmt.Sprintf("placed-%d", time.Now().UnixNano()) // the node outlasts the test
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	require.NoError(t, err)
	w, err := worker.New(worker.Config{Keys: []string{secret}, Name: name,
		Log: slog.New(slog.DiscardHandler), Heartbeat: 50 * time.Millisecond})
	require.NoError(t, err)
	end := make(chan struct{})
	worker.Handle(w, name, "do", func(ctx context.Context, task worker.Task[int]) (int, error) {
		if err := task.Progress(ctx, 40, "half of it"); err != nil {
			return 0, err
		}
		<-end
		return 1, nil
	}, worker.AnswerWithin(-1))
	worker.Handle(w, name, "then", func(context.Context, worker.Task[int]) (int, error) {
		return 2, nil // in the answer, with the name, too
	}, worker.AnswerWithin(time.Minute))
	server := httptest.NewServer(w)
	defer server.Close()
	_, err = c.PutTaskType(t.Context(), name, client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "do"},
			{Name: "then", Timeout: client.NewDuration(time.Minute)}}})
	require.NoError(t, err)
	endpoint, err := c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: name, Stage: "do",
		URL: server.URL, Secret: secret})
	require.NoError(t, err)
	_, err = c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: name, Stage: "then",
		URL: server.URL, Secret: secret})
	require.NoError(t, err)
	before := time.Now()
	submitted, err := c.Submit(t.Context(),
		client.NewTask{Type: name, Context: client.JSON(`1`)})
	require.NoError(t, err)
	var task client.Task
	require.Eventually(t, func() bool {
		task, err = c.Get(t.Context(), submitted.ID)
		return err == nil && task.Run != nil && !task.Run.LastHeartbeat.IsZero() &&
			task.Run.Endpoint != "" && task.Progress.Percent != 0
	}, 2*time.Minute, 20*time.Millisecond)
	run := task.Run
	assert.Equal(t, []string{server.URL, endpoint.ID, "testnode", name},
		[]string{run.Endpoint, run.EndpointID, run.Node, run.Worker})
	assert.WithinRange(t, run.Since, before.Add(-time.Minute), time.Now().Add(time.Minute))
	assert.WithinRange(t, run.LastHeartbeat, run.Since, time.Now().Add(time.Minute))
	assert.Greater(t, task.Deadline, run.Since)
	assert.EqualValues(t, 40, task.Progress.Percent)
	close(end)
	_, err = c.Wait(t.Context(), task.ID, 2*time.Minute)
	require.NoError(t, err)
	attempts, err := c.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	for _, a := range attempts {
		assert.Equal(t, []string{"testnode", name, server.URL},
			[]string{a.Node, a.Worker, a.Endpoint}, a.Stage)
	}
	found, err := c.List(t.Context(), client.ListParams{Worker: name})
	require.NoError(t, err)
	require.NotEmpty(t, found.Data)
	assert.Equal(t, task.ID, found.Data[0].ID)
	found, err = c.List(t.Context(), client.ListParams{Worker: name + "-2"})
	require.NoError(t, err)
	assert.Empty(t, found.Data)
}
