package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

// claimType makes a task type with one claimed stage.
func claimType(t *testing.T, name string) *client.Client {
	t.Helper()
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	require.NoError(t, err)
	_, err = c.PutTaskType(t.Context(), name, client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "look", Mode: asyncflow.ModeClaim,
			Retry: client.RetryPolicy{MaxAttempts: 2, Interval: client.Seconds(-0.1)}}}})
	require.NoError(t, err)
	return c
}

func claimWorker(t *testing.T) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{Log: quiet})
	require.NoError(t, err)
	return w
}

// The same handlers work on claims: with retries, and no more at once than asked for.
func TestClaimedTasks(t *testing.T) {
	t.Parallel()
	c := claimType(t, "claim-work")
	w := claimWorker(t)
	var now, failed atomic.Int32
	worker.Handle(w, "claim-work", "look", func(
		_ context.Context, task worker.Task[int],
	) (int, error) {
		defer now.Add(-1)
		assert.LessOrEqual(t, now.Add(1), int32(3))
		if task.Context%5 == 0 && task.Attempt == 1 {
			failed.Add(1)
			return 0, errors.New("not yet")
		}
		return 2 * task.Context, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- w.Claim(ctx, worker.Claims{Client: c, Concurrency: 3}, "claim-work", "look")
	}()
	const tasks = 30
	var ids []string
	for i := range tasks {
		task, err := c.Submit(t.Context(),
			client.NewTask{Type: "claim-work", Context: client.JSON(fmt.Sprint(i))})
		require.NoError(t, err)
		ids = append(ids, task.ID)
	}
	for i, id := range ids {
		task, err := c.Wait(t.Context(), id, 2*time.Minute)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(2*i), string(task.Result), "%s", task.Status)
	}
	assert.EqualValues(t, tasks/5, failed.Load())
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, w.Close(t.Context()))
}

// A claimed task brings its labels.
func TestClaimedLabels(t *testing.T) {
	t.Parallel()
	c := claimType(t, "claim-labels")
	w := claimWorker(t)
	worker.Handle(w, "claim-labels", "look", func(
		_ context.Context, task worker.Task[int],
	) ([]any, error) {
		return []any{task.User, task.Tags, task.Metadata, task.Trace}, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Claim(ctx, worker.Claims{Client: c}, "claim-labels", "look") }()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	task, err := c.Submit(t.Context(), client.NewTask{Type: "claim-labels",
		Context: client.JSON(`1`), User: "ada", Tags: []string{"eu"},
		Metadata: map[string]string{"order": "4711"}, Trace: trace})
	require.NoError(t, err)
	done, err := c.Wait(t.Context(), task.ID, 2*time.Minute)
	require.NoError(t, err)
	assert.JSONEq(t, `["ada",["eu"],{"order":"4711"},"`+trace+`"]`, string(done.Result))
	stop()
	require.NoError(t, <-ended)
}

// A claimer gets the checkpoint that an earlier claim left, and may choose the next stage.
func TestClaimedCheckpoint(t *testing.T) {
	t.Parallel()
	c := claimType(t, "claim-checkpoint")
	w := claimWorker(t)
	worker.Handle(w, "claim-checkpoint", "look", func(
		ctx context.Context, task worker.Task[int],
	) (string, error) {
		if task.Attempt == 1 {
			assert.NoError(t, task.SaveCheckpoint(ctx, "half"))
			return "", errors.New("not yet")
		}
		return string(task.Checkpoint), worker.Finish
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Claim(ctx, worker.Claims{Client: c}, "claim-checkpoint", "look") }()
	submitted, err := c.Submit(t.Context(),
		client.NewTask{Type: "claim-checkpoint", Context: client.JSON(`1`)})
	require.NoError(t, err)
	task, err := c.Wait(t.Context(), submitted.ID, 2*time.Minute)
	require.NoError(t, err)
	assert.JSONEq(t, `"\"half\""`, string(task.Result), task.Error)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, w.Close(t.Context()))
}

// After a stop, nothing begins; what is begun is finished and reported.
func TestClaimStops(t *testing.T) {
	t.Parallel()
	c := claimType(t, "claim-stop")
	w := claimWorker(t)
	begun, goOn := make(chan string, 10), make(chan struct{})
	worker.Handle(w, "claim-stop", "look",
		func(_ context.Context, task worker.Task[int]) (worker.None, error) {
			begun <- task.ID
			<-goOn
			return worker.None{}, nil
		})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- w.Claim(ctx, worker.Claims{Client: c, Concurrency: 2}, "claim-stop", "look")
	}()
	var ids []string
	for range 4 {
		task, err := c.Submit(t.Context(), client.NewTask{Type: "claim-stop",
			Context: client.JSON(`1`)})
		require.NoError(t, err)
		ids = append(ids, task.ID)
	}
	for range 2 {
		<-begun
	}
	stop()
	require.NoError(t, <-ended)
	close(goOn)
	require.NoError(t, w.Close(t.Context()))
	assert.Empty(t, begun)
	done := 0
	for _, id := range ids {
		task, err := c.Get(t.Context(), id)
		require.NoError(t, err)
		if task.Status == client.StatusSucceeded {
			done++
		} else {
			assert.Equal(t, client.StatusWaiting, task.Status)
		}
	}
	assert.Equal(t, 2, done)
}

func TestClaimRefused(t *testing.T) {
	t.Parallel()
	c := claimType(t, "claim-refused")
	w := claimWorker(t)
	worker.Handle(w, "claim-refused", "other",
		func(context.Context, worker.Task[int]) (worker.None, error) { return worker.None{}, nil })
	err := w.Claim(t.Context(), worker.Claims{Client: c}, "claim-refused", "look")
	require.ErrorContains(t, err, "has no handler")
	err = w.Claim(t.Context(), worker.Claims{Client: c}, "claim-refused", "other")
	require.ErrorContains(t, err, "not a stage")
	err = w.Claim(t.Context(), worker.Claims{}, "claim-refused", "other")
	require.ErrorContains(t, err, "Client is required")
}

// After its handler returned Later, a task isn't handed out again while its claim is open.
func TestAClaimThatGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	c := claimType(t, "claim-later")
	w := claimWorker(t)
	var runs, others atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	worker.Handle(w, "claim-later", "look", func(
		_ context.Context, task worker.Task[int],
	) (worker.None, error) {
		if task.Context == 1 {
			runs.Add(1)
			return worker.None{}, worker.Later
		}
		if others.Add(1) == 5 {
			stop()
		}
		return worker.None{}, nil
	})
	submit := func(n int) {
		_, err := c.Submit(t.Context(), client.NewTask{Type: "claim-later",
			Context: client.JSON(fmt.Sprint(n))})
		assert.NoError(t, err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- w.Claim(ctx, worker.Claims{Client: c, Concurrency: 1,
			Wait: 100 * time.Millisecond}, "claim-later", "look")
	}()
	submit(1)
	for n := range 5 {
		submit(n + 2)
		require.Eventually(t, func() bool { return others.Load() > int32(n) }, 2*time.Minute,
			20*time.Millisecond)
	}
	require.NoError(t, <-ended)
	assert.EqualValues(t, 1, runs.Load())
}

// More tasks than fit into a claimer's set go on elsewhere, one by one: none comes twice, and when
// all are open no more are claimed.
func TestManyClaimsThatGoOnElsewhere(t *testing.T) {
	t.Parallel()
	const most = 3
	c := claimType(t, "claim-many")
	var said lines
	w, err := worker.New(worker.Config{Log: slog.New(slog.NewTextHandler(&said, nil))})
	require.NoError(t, err)
	w.SetMostClaims(most)
	begun := make(chan worker.Callback, 20)
	worker.Handle(w, "claim-many", "look", func(
		_ context.Context, task worker.Task[int],
	) (worker.None, error) {
		begun <- task.Callback
		return worker.None{}, worker.Later
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- w.Claim(ctx, worker.Claims{Client: c, Wait: 50 * time.Millisecond}, "claim-many",
			"look")
	}()
	for n := range most + 3 {
		_, err := c.Submit(t.Context(), client.NewTask{Type: "claim-many",
			Context: client.JSON(fmt.Sprint(n))})
		require.NoError(t, err)
	}
	open := map[worker.Callback]bool{}
	next := func() (cb worker.Callback) {
		t.Helper()
		select {
		case cb = <-begun:
		case <-time.After(2 * time.Minute):
			require.Fail(t, "no task came")
		}
		require.False(t, open[cb])
		open[cb] = true
		return cb
	}
	first := next()
	for range most - 1 {
		next()
	}
	require.Eventually(t, func() bool { return said.has("all claims are open elsewhere") },
		2*time.Minute, 20*time.Millisecond)
	require.Empty(t, begun, "no more are claimed")
	for cb := range open { // the first one stays open
		if cb != first {
			require.NoError(t, w.Reporter().Complete(t.Context(), cb, nil))
		}
	}
	for range 2 {
		require.NoError(t, w.Reporter().Complete(t.Context(), next(), nil))
	}
	require.NoError(t, w.Reporter().Complete(t.Context(), next(), nil))
	require.NoError(t, w.Reporter().Complete(t.Context(), first, nil))
	stop()
	require.NoError(t, <-ended)
	require.Empty(t, begun, "none came twice")
}

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}
