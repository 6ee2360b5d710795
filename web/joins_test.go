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

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// makeAlbum makes types with tasks that wait for others: an album for two photos and a notice, a
// photo for two captions. There is no worker for captions until serveCaptions is called.
func (p *page) makeAlbum() (serveCaptions func()) {
	p.t.Helper()
	tasks := func(names ...string) worker.Step {
		all := make([]client.SpawnedTask, len(names))
		for i, name := range names {
			all[i] = client.SpawnedTask{Type: name, Context: client.JSON(`1`)}
		}
		return worker.Spawn(all...).Join()
	}
	waits := map[string]worker.Step{"album": tasks("photo", "photo", "notice"),
		"photo": tasks("caption", "caption")}
	for name, starts := range map[string][]string{"album": {"photo", "notice"},
		"photo": {"caption"}, "notice": nil, "caption": nil} {
		_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{
			Stages: []client.Stage{{Name: "make", Spawn: starts}}})
		require.NoError(p.t, err)
	}
	serve := func(names ...string) {
		w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler), Keys: []string{
			"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
		require.NoError(p.t, err)
		for _, name := range names {
			worker.Handle(w, name, "make", func(context.Context, worker.Task[int]) (any, error) {
				if step, ok := waits[name]; ok {
					return nil, step
				}
				return 1, nil
			})
		}
		server := httptest.NewServer(w)
		p.t.Cleanup(server.Close)
		require.NoError(p.t, w.Register(p.t.Context(),
			worker.Registration{Client: p.api, URL: server.URL}))
	}
	serve("album", "photo", "notice")
	return func() { serve("caption") }
}

// children returns the n children of a task that are of a type, by their index, once they are made.
func (p *page) children(parent, name string, n int) map[int]string {
	p.t.Helper()
	ids := map[int]string{}
	require.Eventually(p.t, func() bool {
		list, err := p.api.List(p.t.Context(), client.ListParams{Type: name, Parent: parent})
		if err != nil {
			return false
		}
		for _, task := range list.Data {
			ids[task.ChildOf.Index] = task.ID
		}
		return len(ids) == n
	}, patience, 20*time.Millisecond)
	return ids
}

// The page of a task that waits for tasks that it started counts them and what is below them, and
// shows a branch for each of their types. Their pages lead back.
func TestJoinedTasks(t *testing.T) {
	p := openPage(t, all...)
	serveCaptions := p.makeAlbum()
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "album",
		Context: client.JSON(`1`)})
	require.NoError(t, err)
	album := task.ID
	require.Eventually(t, func() bool {
		now, err := p.api.Get(t.Context(), album)
		return err == nil && now.Tree != nil && now.Tree.Total == 7 && now.Children.Succeeded == 1
	}, patience, 20*time.Millisecond)
	photos, notices := p.children(album, "photo", 2), p.children(album, "notice", 1)
	captions := p.children(photos[1], "caption", 2)

	p.checkPage(shown{"joined", "/console/tasks/" + album, "3 in all: 2 waiting 1 succeeded"})
	p.See("With what is below them: 7 tasks in 2 levels: 1 succeeded")
	assert.Equal(t, []string{"1 notice", "2 photo"}, p.list("#spawned li"))
	assert.NotContains(t, p.Text(), photos[1])
	p.toggle("Children of " + album + " of the type photo")
	p.See(photos[0] + " waiting make waits for its children")
	assert.NotContains(t, p.Text(), notices[2])
	p.toggle("Children of " + album + " of the type notice")
	p.See(notices[2] + " succeeded")
	p.toggle("Below " + photos[1])
	p.toggle("Children of " + photos[1])
	p.See(captions[1] + " waiting make waits for an endpoint for its stage")
	for _, width := range []int64{390, 1280} {
		p.resize(width, 800)
		assert.Empty(t, p.axe(), "at width %d", width)
		p.fits(width)
	}

	serveCaptions()
	p.See("3 in all: 3 succeeded")
	p.See("With what is below them: 7 tasks in 2 levels: 7 succeeded")
	p.See(captions[1] + " succeeded")
	p.Click(photos[1])
	p.See(album + " › child 2 of 3")
	p.See("2 in all: 2 succeeded")
	p.Gone("With what is below them")
	p.Click(album)
	p.See("3 in all: 3 succeeded")
	got, err := p.api.Get(t.Context(), album)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusSucceeded, got.Status)
	p.quiet()
}
