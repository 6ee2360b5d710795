package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/testnode"
	"github.com/asyncflow/asyncflow/worker"
)

// A worker does tasks, and is told their ends: each by one event, which comes again if it was
// refused. The log says how long after the end the events came; in the long form there are 1,000
// ends a second.
func TestANodeTellsEnds(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	const pace = 50 // tasks of a batch
	batches := longform.Size(4, 400)
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	require.NoError(t, err)
	w, err := worker.New(worker.Config{Keys: []string{secret},
		Log: slog.New(slog.DiscardHandler), MaxInFlight: 10_000})
	require.NoError(t, err)
	worker.Handle(w, "told", "do",
		func(_ context.Context, task worker.Task[int]) (int, error) {
			if task.Context%10 == 9 {
				return 0, worker.Fail(fmt.Errorf("no"))
			}
			return task.Context, nil
		})
	var mu sync.Mutex
	var took []time.Duration
	came := map[string]worker.FinalTask{} // by the id of the event
	refused := ""                         // the first event, which is refused once
	times := 0                            // that it came
	all := make(chan struct{})
	w.HandleFinal(func(_ context.Context, e worker.FinalEvent) error {
		mu.Lock()
		defer mu.Unlock()
		if refused == "" {
			refused = e.ID
		}
		if e.ID == refused {
			if times++; times == 1 {
				return errors.New("the disk is full")
			}
		} else {
			took = append(took, time.Since(e.Data.FinishedAt))
		}
		_, again := came[e.ID]
		came[e.ID] = e.Data
		if !again && len(came) == batches*pace {
			close(all)
		}
		return nil
	})
	server := httptest.NewServer(w)
	defer server.Close()
	_, err = c.PutTaskType(t.Context(), "told", client.TaskTypeSpec{
		Stages:  []client.Stage{{Name: "do"}},
		OnFinal: &client.OnFinal{URL: server.URL + "/ended", Secret: secret}})
	require.NoError(t, err)
	_, err = c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "told", Stage: "do",
		URL: server.URL, Secret: secret})
	require.NoError(t, err)
	next := time.NewTicker(time.Second * pace / 1000)
	defer next.Stop()
	for i := range batches {
		tasks := make([]client.NewTask, pace)
		for n := range tasks {
			tasks[n] = client.NewTask{Type: "told",
				Context: json.RawMessage(fmt.Sprint(i*pace + n))}
		}
		results, err := c.SubmitMany(t.Context(), tasks)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Err)
		}
		<-next.C
	}
	select {
	case <-all:
	case <-time.After(2 * time.Minute):
		mu.Lock()
		defer mu.Unlock()
		var open []client.Task
		for task, err := range c.All(context.Background(), client.ListParams{}) {
			require.NoError(t, err)
			if !task.Status.Final() {
				open = append(open, task)
			}
		}
		t.Fatalf("%d of %d ends were told; not final: %+v", len(came), batches*pace, open)
	}
	mu.Lock()
	defer mu.Unlock()
	tasks := map[string]bool{}
	failed := 0
	for _, data := range came {
		require.False(t, tasks[data.ID], "%s is told by two events", data.ID)
		tasks[data.ID] = true
		if data.Status == asyncflow.StatusFailed {
			failed++
			require.Equal(t, "no", data.Error)
		}
	}
	require.Equal(t, batches*pace/10, failed)
	require.Equal(t, 2, times, "the event that was refused came again")
	slices.Sort(took)
	t.Logf("%d ends: half were told within %s, 99 of 100 within %s, all within %s", len(took),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
