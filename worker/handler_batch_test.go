package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// batchOf returns a batch with a delivery for each context. Its tasks are images.1.0, images.1.1
// and so on.
func (b *bundle) batchOf(contexts ...string) map[string]any {
	all := []any{}
	for i, c := range contexts {
		e := b.envelope(c)
		e["task_id"] = "images.1." + strconv.Itoa(i)
		all = append(all, e)
	}
	return map[string]any{"deliveries": all}
}

// Each delivery of a batch gets its own outcome in the one answer. Deliveries that take longer are
// accepted, and reported one by one.
func TestBatch(t *testing.T) {
	b := setup(t, func(c *Config) { c.AnswerWithin = 100 * time.Millisecond })
	release := make(chan struct{})
	b.inspects(func(_ context.Context, task Task[photo]) (picture, error) {
		switch task.Context.Image {
		case "slow":
			<-release
		case "retry":
			return picture{}, Retry(errors.New("busy"), time.Minute)
		case "fail":
			return picture{}, Fail(errors.New("no image"))
		case "later":
			return picture{}, Later
		}
		return picture{len(task.Context.Image)}, nil
	})
	r := b.post(signed(t,
		b.batchOf(`{"image":"a.jpg"}`, `{"image":"retry"}`, `{"image":"fail"}`, `{"image":"later"}`,
			`{"image":"slow"}`, `{"image":1}`)))
	require.Equal(t, 200, r.status)
	var a struct{ Results []answer }
	require.NoError(t, json.Unmarshal([]byte(r.body), &a))
	require.Contains(t, a.Results[5].Error, "the context can't be read")
	a.Results[5].Error = ""
	want := `{"results":[{"task_id":"images.1.0","output":{"width":5}},
		{"task_id":"images.1.1","outcome":"retry","error":"busy","retry_after":"1m"},
		{"task_id":"images.1.2","outcome":"fail","error":"no image"},
		{"task_id":"images.1.3","outcome":"accepted"},
		{"task_id":"images.1.4","outcome":"accepted"},
		{"task_id":"images.1.5","outcome":"fail"}]}`
	got, err := json.Marshal(map[string]any{"results": a.Results})
	require.NoError(t, err)
	require.JSONEq(t, want, string(got))
	close(release)
	require.JSONEq(t, `{"output":{"width":4}}`, b.asyncflow.next(t, "complete"))
	b.close()
	require.Empty(t, b.asyncflow.reports)
}

// A batch of one is still a batch. If nothing is done in time, it is accepted as a whole.
func TestBatchOfOne(t *testing.T) {
	b := setup(t)
	b.inspects(func(context.Context, Task[photo]) (picture, error) { return picture{1}, nil })
	require.JSONEq(t, `{"results":[{"task_id":"images.1.0","output":{"width":1}}]}`,
		b.post(signed(t, b.batchOf(`{}`))).body)
	slow := b.batchOf(`{}`, `{}`)
	for _, e := range slow["deliveries"].([]any) {
		e.(map[string]any)["stage"] = "slow"
	}
	Handle(b.worker, "images", "slow", func(context.Context, Task[photo]) (picture, error) {
		return picture{1}, nil
	}, AnswerWithin(-1))
	r := b.post(signed(t, slow))
	require.Equal(t, []any{202, ""}, []any{r.status, r.body})
	for range 2 {
		b.asyncflow.next(t, "complete")
	}
}

// When the connection breaks, finished results are reported, too.
func TestBatchBrokenConnection(t *testing.T) {
	b := setup(t)
	started, release := make(chan struct{}), make(chan struct{})
	b.inspects(func(_ context.Context, task Task[photo]) (picture, error) {
		if task.Context.Image == "slow" {
			close(started)
			<-release
		}
		return picture{1}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	m := signed(t, b.batchOf(`{}`, `{"image":"slow"}`))
	gone := make(chan error, 1)
	go func() { _, err := b.try(ctx, m); gone <- err }()
	<-started
	cancel()
	require.Error(t, <-gone)
	b.asyncflow.next(t, "complete")
	close(release)
	b.asyncflow.next(t, "complete")
}

// A batch handler gets the tasks that can be read, and its results are matched by position.
func TestHandleBatch(t *testing.T) {
	b := setup(t)
	var got []string
	HandleBatch(b.worker, "images", "inspect",
		func(_ context.Context, tasks []Task[photo]) []Result[picture] {
			var results []Result[picture]
			got = nil
			for _, task := range tasks {
				got = append(got, task.ID+" "+task.Context.Image)
				if task.Context.Image == "panic" {
					panic("no")
				}
				results = append(results, Result[picture]{Output: picture{len(task.Context.Image)}})
			}
			if len(results) > 2 {
				results[1].Err = Fail(errors.New("no image"))
				results = results[:2]
			}
			return results
		})
	r := b.post(signed(t, b.batchOf(`{"image":"a"}`, `1`, `{"image":"bb"}`, `{"image":"c"}`)))
	require.Equal(t, []string{"images.1.0 a", "images.1.2 bb", "images.1.3 c"}, got)
	const unread = "the context can't be read: " +
		"json: cannot unmarshal number into Go value of type worker.photo"
	require.JSONEq(t, `{"results":[{"task_id":"images.1.0","output":{"width":1}},
		{"task_id":"images.1.1","outcome":"fail","error":"`+unread+`"},
		{"task_id":"images.1.2","outcome":"fail","error":"no image"},
		{"task_id":"images.1.3","outcome":"retry",
		"error":"the handler returned no result for this task"}]}`, r.body)

	r = b.post(signed(t, b.batchOf(`{"image":"a"}`, `{"image":"panic"}`)))
	require.JSONEq(t,
		`{"results":[{"task_id":"images.1.0","outcome":"retry","error":"the handler panicked: no"},
		{"task_id":"images.1.1","outcome":"retry","error":"the handler panicked: no"}]}`, r.body)

	got = nil
	require.JSONEq(t, `{"outcome":"fail","error":"`+unread+`"}`, b.deliver(`1`).body)
	require.Empty(t, got, "nothing to work on")
	require.JSONEq(t, `{"output":{"width":3}}`, b.deliver(`{"image":"abc"}`).body,
		"an endpoint without batches")
}

// The context of a batch ends when no task of it counts any more, and not before.
func TestHandleBatchCancelled(t *testing.T) {
	b := setup(t, func(c *Config) { c.Heartbeat = 5 * time.Millisecond })
	causes := make(chan error, 1)
	b.asyncflow.beats("running", time.Minute, 200)
	HandleBatch(b.worker, "images", "inspect",
		func(ctx context.Context, tasks []Task[photo]) []Result[picture] {
			b.asyncflow.next(t, "heartbeat")
			require.NoError(t, ctx.Err())
			b.asyncflow.answers(func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = rw.Write([]byte(`{"status":"cancelled"}`))
			})
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		}, AnswerWithin(-1))
	require.Equal(t, 202, b.post(signed(t, b.batchOf(`{}`, `{}`))).status)
	require.ErrorIs(t, <-causes, ErrCancelled)
}

// A batch that is larger than the whole capacity is admitted alone.
func TestLargeBatch(t *testing.T) {
	b := setup(t, func(c *Config) { c.MaxInFlight = 2 })
	b.inspects(func(context.Context, Task[photo]) (picture, error) { return picture{1}, nil })
	require.Equal(t, 200, b.post(signed(t, b.batchOf(`{}`, `{}`, `{}`))).status)
	require.Eventually(t, func() bool {
		return b.worker.InFlight() == 0
	}, soon, 20*time.Millisecond)
	require.Equal(t, 200, b.deliver(`{}`).status)
}
