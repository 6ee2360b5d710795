package web_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/worker"
)

// cursor is a context of a type of makeLoop. Page 0 isn't there yet.
type cursor struct {
	Page int `json:"page"`
	Last int `json:"last"`
}

// makeLoop makes a task type that fetches and stores page after page, and a worker. The second page
// is stored at the second attempt.
func (p *page) makeLoop(name string) {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{
		MaxSteps: 500,
		Stages: []client.Stage{
			{Name: "fetch", Next: []string{"store", "finish"}},
			{Name: "store", Next: []string{"fetch", "review", "finish"},
				Deliver:   &asyncflow.Deliver{Input: true, Outputs: []string{"fetch"}},
				OnFailure: &asyncflow.StageFailure{Next: "review"},
				Retry:     client.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Seconds(1)}},
			{Name: "review"},
		}})
	require.NoError(p.t, err)
	w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler), Keys: []string{
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	require.NoError(p.t, err)
	worker.Handle(w, name, "fetch", func(
		ctx context.Context, t worker.Task[cursor],
	) (cursor, error) {
		if t.Context.Page == 0 {
			return cursor{}, errors.Join(t.SaveCheckpoint(ctx, "asked the registry"),
				worker.Snooze(time.Hour))
		}
		return t.Context, worker.Next("store")
	})
	worker.Handle(w, name, "store", func(_ context.Context, t worker.Task[cursor]) (cursor, error) {
		switch page := t.Context.Page; {
		case page == 2 && t.Attempt == 1:
			return cursor{}, errors.New("the disk is full")
		case page == t.Context.Last:
			return t.Context, worker.Finish
		default:
			return cursor{page + 1, t.Context.Last}, worker.Next("fetch")
		}
	})
	worker.Handle(w, name, "review", func(
		_ context.Context, t worker.Task[cursor],
	) (cursor, error) {
		return t.Context, nil
	})
	server := httptest.NewServer(w)
	p.t.Cleanup(server.Close)
	require.NoError(p.t, w.Register(p.t.Context(),
		worker.Registration{Client: p.api, URL: server.URL}))
}

// list returns the texts of the entries of a list, for screen readers too.
func (p *page) list(selector string) []string {
	p.t.Helper()
	return browsertest.Ask[[]string](p.t, p.ctx, `[...document.querySelectorAll(`+
		browsertest.Quote(selector)+`)].map(e => e.textContent.replace(/\s+/g, " ").trim())`)
}

// The page of a type that branches draws its ways, and that of a task the ways that it took, and
// its path.
func TestSteps(t *testing.T) {
	p := openPage(t, all...)
	p.makeLoop("loop")
	p.checkPage(shown{"steps-type", "/console/types/loop", "A task visits at most 500 stages"})
	p.See("Then comes fetch or review or the end")
	p.See("Is given the input; the latest output of fetch")
	p.See("If it fails, then comes review")
	ways := []string{"fetch → store, the end",
		"store → fetch, review, the end; if it fails → review", "review → the end", "the end"}
	assert.Equal(t, ways, p.list(".ways li"))
	assert.Len(t, p.list(".ways g"), 7)
	assert.Empty(t, p.list(".ways g.taken"))

	long := p.submit("loop", `{"page": 1, "last": 55}`, client.StatusSucceeded)
	p.checkPage(shown{"steps", "/console/tasks/" + long, "10 earlier visits"})
	assert.Equal(t, []string{
		"fetch, passed 55 visits → store (taken), the end",
		"store, passed 55 visits → fetch (taken), review, the end (taken); if it fails → review",
		"review, next → the end",
		"the end",
	}, p.list(".ways li"))
	assert.Len(t, p.list(".ways g.taken"), 3)
	steps := p.list(".path li")
	require.Len(t, steps, 22)
	assert.Equal(t, []string{"10 earlier visits", "fetch #6", "store #6"}, steps[:3])
	assert.Equal(t, []string{"store #10", "80 more", "fetch #51"}, steps[10:13])
	assert.Equal(t, "store #55", steps[21])
	p.Click("Show all 100")
	p.Run(`return document.querySelectorAll(".path li").length === 101`)

	short := p.submit("loop", `{"page": 2, "last": 3}`, client.StatusSucceeded)
	p.open("/console/tasks/" + short)
	p.See("store attempt 2: done → fetch")
	p.See("store attempt 1: done → succeeded")
	p.See("The stage is given the input; the latest output of fetch")
	assert.Equal(t, []string{"fetch", "store (2 attempts)", "fetch #2", "store #2"},
		p.list(".path li"))
	assert.NotContains(t, p.Text(), "Show all")

	later, err := p.api.Submit(t.Context(),
		client.NewTask{Type: "loop", Context: client.JSON(`{"page": 0}`)})
	require.NoError(t, err)
	p.open("/console/tasks/" + later.ID)
	p.See("May be put off for 1 d in all")
	assert.Equal(t, "fetch, waiting → store, the end", p.list(".ways li")[0])
	assert.Equal(t, []string{"fetch"}, p.list(".path li"))
	p.Click("Checkpoint")
	p.See("In fetch,")
	p.See(`"asked the registry"`)
	p.quiet()
}
