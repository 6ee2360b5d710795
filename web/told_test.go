package web_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// The page of a task shows which task tells its end, and how that stands; and the page of that one
// leads back.
func TestNotificationsOfATask(t *testing.T) {
	p := openPage(t, all...)
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler), Keys: []string{secret}})
	require.NoError(t, err)
	worker.Handle(w, "told", "make", func(context.Context, worker.Task[int]) (int, error) {
		return 1, nil
	})
	w.HandleFinal(func(context.Context, worker.FinalEvent) error { return nil })
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	_, err = p.api.PutTaskType(t.Context(), "told", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "make"}}})
	require.NoError(t, err)
	require.NoError(t, w.Register(t.Context(),
		worker.Registration{Client: p.api, URL: server.URL}))
	task, err := p.api.SubmitAndWait(t.Context(), client.NewTask{Type: "told",
		Context: client.JSON(`1`),
		OnFinal: &client.OnFinal{URL: server.URL + "/ended", Secret: secret}}, time.Minute)
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.See(server.URL + "/ended is told, by " + task.OnFinal.Target)
	var got client.Task
	require.Eventually(t, func() bool {
		got, err = p.api.Get(t.Context(), task.ID)
		return err == nil && len(got.Notifications) == 1
	}, patience, 20*time.Millisecond)
	p.See(got.Notifications[0] + " succeeded")
	p.Click(got.Notifications[0])
	p.See("Tells the end of a task")
	p.See(task.ID + " to " + server.URL + "/ended")
	p.quiet()
}
