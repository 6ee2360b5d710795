package worker_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// A handler gets the links of a wait. Somebody presses the button behind one, before the task waits
// or while it does, and the next stage gets the decision.
func TestTheLinksOfATask(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"links-early": true, "links-late": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claimType(t, name)
			_, err := c.PutTaskType(t.Context(), name, client.TaskTypeSpec{Stages: []client.Stage{
				{Name: "ask", Mode: asyncflow.ModeClaim},
				{Name: "review", Mode: asyncflow.ModeWait, Wait: &asyncflow.Wait{Signal: "reviewed",
					Timeout: asyncflow.NewDuration(time.Hour),
					Links:   &asyncflow.Links{Decisions: []string{"ship", "drop"}}}},
				{Name: "act", Mode: asyncflow.ModeClaim}}})
			require.NoError(t, err)
			w := claimWorker(t)
			links := make(chan map[string]string, 1)
			worker.Handle(w, name, "ask", func(
				_ context.Context, task worker.Task[int],
			) (any, error) {
				if early {
					press(t, task.Links["review"]["drop"], "Anna")
				}
				links <- task.Links["review"]
				return nil, nil
			})
			worker.Handle(w, name, "act", func(
				_ context.Context, task worker.Task[asyncflow.LinkDecision],
			) (string, error) {
				assert.Nil(t, task.Links)
				return task.Context.Decision + " by " + task.Context.By, nil
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			for _, stage := range []string{"ask", "act"} {
				go func() { ended <- w.Claim(ctx, worker.Claims{Client: c}, name, stage) }()
			}
			task, err := c.Submit(t.Context(), client.NewTask{Type: name,
				Context: client.JSON("1")})
			require.NoError(t, err)
			given := <-links
			require.Len(t, given, 2)
			if !early {
				press(t, given["drop"], "Anna")
			}
			done, err := c.Wait(t.Context(), task.ID, 2*time.Minute)
			require.NoError(t, err)
			assert.JSONEq(t, `"drop by Anna"`, string(done.Result), done.Error)
			stop()
			for range 2 {
				require.NoError(t, <-ended)
			}
		})
	}
}

// press does what the button of a link's page does.
func press(t *testing.T, link, by string) {
	t.Helper()
	resp, err := http.PostForm(link, url.Values{"by": {by}})
	if assert.NoError(t, err) {
		assert.Equal(t, 200, resp.StatusCode)
		assert.NoError(t, resp.Body.Close())
	}
}
