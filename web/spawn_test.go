package web_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// makeSplit makes a task type that starts tasks of its own, and a worker.
func (p *page) makeSplit(name string) {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "split", Spawn: []string{name}}}})
	require.NoError(p.t, err)
	w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler), Keys: []string{
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	require.NoError(p.t, err)
	worker.Handle(w, name, "split", func(_ context.Context, t worker.Task[int]) (int, error) {
		if t.Context == 0 {
			return 0, nil
		}
		one := client.SpawnedTask{Type: name, Context: client.JSON(`0`)}
		return t.Context, worker.Spawn(one, one)
	})
	server := httptest.NewServer(w)
	p.t.Cleanup(server.Close)
	require.NoError(p.t, w.Register(p.t.Context(),
		worker.Registration{Client: p.api, URL: server.URL}))
}

// The page of a task counts the tasks that it started, and leads to them; their pages lead back.
func TestStartedTasks(t *testing.T) {
	p := openPage(t, all...)
	p.makeSplit("split")
	id := p.submit("split", `1`, client.StatusSucceeded)
	require.Eventually(t, func() bool {
		task, err := p.api.Get(t.Context(), id)
		return err == nil && len(task.Spawned) == 1 && task.Spawned[0].Count == 2
	}, patience, 20*time.Millisecond)
	p.open("/console/types/split")
	p.See("May start split")
	p.open("/console/tasks/" + id)
	p.See("Started tasks")
	assert.Equal(t, []string{"2 split"}, p.list("#spawned li"))
	list, err := p.api.List(t.Context(), client.ListParams{Type: "split", Parent: id})
	require.NoError(t, err)
	require.Len(t, list.Data, 2)
	p.open("/console/tasks/" + list.Data[0].ID)
	p.See(id + " › started by it")
}
