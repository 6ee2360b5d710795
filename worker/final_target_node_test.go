package worker_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/testnode"
	"github.com/asyncflow/asyncflow/worker"
)

// A receiver of ends that is down opens a breaker of its own, and holds up no other one. A limit of
// the endpoint bounds how many ends a receiver gets at once.
func TestReceiversHaveABreakerAndLimits(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	const tasks = 60
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	require.NoError(t, err)
	w, err := worker.New(worker.Config{Keys: []string{secret}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	var down, came, at, most atomic.Int32
	w.HandleFinal(func(context.Context, worker.FinalEvent) error {
		if n := at.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-time.After(5 * time.Millisecond) // it works
		at.Add(-1)
		came.Add(1)
		return nil
	})
	well := httptest.NewServer(w)
	defer well.Close()
	ill := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Webhook-Id"), "asyncflow.challenge.") {
			w.ServeHTTP(rw, r)
			return
		}
		down.Add(1)
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer ill.Close()
	for name, url := range map[string]string{"ends-well": well.URL, "ends-ill": ill.URL} {
		worker.Handle(w, name, "do",
			func(_ context.Context, task worker.Task[int]) (int, error) { return 0, nil })
		_, err = c.PutTaskType(t.Context(), name, client.TaskTypeSpec{
			Stages:  []client.Stage{{Name: "do"}},
			OnFinal: &client.OnFinal{URL: url + "/ended", Secret: secret}})
		require.NoError(t, err)
		_, err = c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: name, Stage: "do",
			URL: well.URL, Secret: secret})
		require.NoError(t, err)
	}
	target := func(url string) client.Endpoint {
		t.Helper()
		all, err := c.Endpoints(t.Context(), "")
		require.NoError(t, err)
		for _, e := range all {
			if e.URL == url+"/ended" {
				return e
			}
		}
		t.Fatal("the target has no endpoint")
		return client.Endpoint{}
	}
	one := 1
	_, err = c.UpdateEndpoint(t.Context(), target(well.URL).ID,
		client.EndpointPatch{MaxInFlight: &one})
	require.NoError(t, err)
	submit := func(name string) {
		t.Helper()
		all := make([]client.NewTask, tasks)
		for i := range all {
			all[i] = client.NewTask{Type: name, Context: client.JSON("1")}
		}
		results, err := c.SubmitMany(t.Context(), all)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Err)
		}
	}
	submit("ends-ill")
	require.Eventually(t, func() bool {
		return target(ill.URL).Health.State == asyncflow.HealthOpen
	}, 2*time.Minute, 20*time.Millisecond)
	submit("ends-ill")
	submit("ends-well")
	require.Eventually(t, func() bool {
		list, err := c.List(t.Context(), client.ListParams{Type: target(ill.URL).Type, Limit: 200})
		require.NoError(t, err)
		return came.Load() == tasks && slices.ContainsFunc(list.Data, func(task client.Task) bool {
			return string(task.WaitsFor) == string(asyncflow.WaitUnhealthy)
		})
	}, 2*time.Minute, 20*time.Millisecond)
	assert.EqualValues(t, 1, most.Load(), "one at a time")
	assert.Positive(t, down.Load())
	assert.Equal(t, asyncflow.HealthClosed, target(well.URL).Health.State)
}
