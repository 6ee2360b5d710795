package web_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// The console shows that people decide by links, and who decided.
func TestLinks(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "orders", client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "ask", Mode: asyncflow.ModeClaim},
		{Name: "review", Mode: asyncflow.ModeWait, Wait: &asyncflow.Wait{Signal: "reviewed",
			Timeout: asyncflow.NewDuration(time.Hour), Links: &asyncflow.Links{}}}}})
	require.NoError(t, err)
	w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	links := make(chan map[string]string, 1)
	worker.Handle(w, "orders", "ask", func(_ context.Context, task worker.Task[int]) (any, error) {
		links <- task.Links["review"]
		return nil, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Claim(ctx, worker.Claims{Client: p.api}, "orders", "ask") }()
	p.open("/console/types/orders")
	p.See("People decide by links approve, reject")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "orders",
		Context: client.JSON("1")})
	require.NoError(t, err)
	given := <-links
	p.open("/console/tasks/" + task.ID)
	p.See("people decide by links: approve, reject")
	resp, err := http.PostForm(given["reject"], url.Values{"by": {"<b>Anna</b>"}})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	p.See("<b>Anna</b> decided: reject")
	stop()
	require.NoError(t, <-ended)
}
