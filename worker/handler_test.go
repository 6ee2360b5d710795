package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A handler gets the whole delivery, and its return values are the answer.
func TestHandle(t *testing.T) {
	b := setup(t)
	var got Task[photo]
	b.inspects(func(_ context.Context, task Task[photo]) (picture, error) {
		got = task
		return picture{1600}, nil
	})
	e := b.envelope(`{"image": "harbour.jpg", "more": 1}`)
	r := b.post(signed(t, e))
	require.Equal(t, []any{200, `{"output":{"width":1600}}`, "application/json"},
		[]any{r.status, r.body, r.header.Get("Content-Type")})
	require.Equal(t, e["deadline"], got.Deadline.Format(time.RFC3339Nano))
	got.Deadline, got.run = time.Time{}, nil
	require.Equal(t,
		Task[photo]{ID: "images.1.42", Type: "images", Stage: "inspect", Attempt: 2,
			MaxAttempts: 20, Seq: 1,
			Context:  photo{"harbour.jpg"},
			Callback: Callback{URL: b.asyncflow.url + "/v1/callbacks/images.1.42", Token: token}},
		got)
	b.close()
	require.Empty(t, b.asyncflow.reports, "the answer is enough")
}

// A handler gets the labels of its task, also of one in a batch.
func TestLabelsOfADelivery(t *testing.T) {
	b := setup(t)
	var got []Task[photo]
	b.inspects(func(_ context.Context, task Task[photo]) (picture, error) {
		got = append(got, task)
		return picture{}, nil
	})
	e := b.envelope(`{}`)
	e["user"] = "ada"
	e["tags"] = []string{"eu", "nightly"}
	e["metadata"] = map[string]string{"order": "4711"}
	e["trace"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	require.Equal(t, 200, b.post(signed(t, e)).status)
	require.Equal(t, 200,
		b.post(signed(t, map[string]any{"deliveries": []any{e}})).status)
	require.Len(t, got, 2)
	require.Equal(t, e["trace"], got[0].Traceparent, "there is no other")
	e["traceparent"] = "00-8f2c1d0e5b7a49c3a1f06de2b4c8d913-3b9d5c7e1f2a4860-01"
	require.Equal(t, 200, b.post(signed(t, e)).status)
	require.Equal(t, e["traceparent"], got[2].Traceparent)
	for _, task := range got {
		require.Equal(t, []any{"ada", []string{"eu", "nightly"},
			map[string]string{"order": "4711"}, e["trace"]},
			[]any{task.User, task.Tags, task.Metadata, task.Trace})
	}
}

// A handler's return values, as an answer and as a report.
func TestOutcomes(t *testing.T) {
	no := errors.New("no <b>")
	const notANumber = "the output can't be written as JSON: json: unsupported value: NaN"
	for name, c := range map[string]struct {
		out    any
		err    error
		answer string
		verb   string
		report string
	}{
		"output": {picture{3}, nil, `{"output":{"width":3}}`, "complete",
			`{"output":{"width":3}}`},
		"raw": {json.RawMessage(`{"a": "<ü>"}`), nil, `{"output":{"a":"<ü>"}}`, "complete",
			`{"output":{"a":"<ü>"}}`},
		"none": {None{}, nil, `{}`, "complete", `{}`},
		"nil":  {nil, nil, `{}`, "complete", `{}`},
		"error": {nil, no, `{"outcome":"retry","error":"no <b>"}`, "fail",
			`{"error":"no <b>","retryable":true}`},
		"retry": {nil, Retry(no, 90*time.Second),
			`{"outcome":"retry","error":"no <b>","retry_after":"1m30s"}`, "fail",
			`{"error":"no <b>","retry_after":"1m30s","retryable":true}`},
		"wrapped": {nil, fmt.Errorf("so: %w", Retry(no, time.Second)),
			`{"outcome":"retry","error":"so: no <b>","retry_after":"1s"}`, "fail",
			`{"error":"so: no <b>","retry_after":"1s","retryable":true}`},
		"no pause": {nil, Retry(no, -time.Second), `{"outcome":"retry","error":"no <b>"}`, "fail",
			`{"error":"no <b>","retryable":true}`},
		"fail": {nil, Fail(no), `{"outcome":"fail","error":"no <b>"}`, "fail",
			`{"error":"no <b>","retryable":false}`},
		"fail for good": {nil, Retry(Fail(no), time.Second), `{"outcome":"fail","error":"no <b>"}`,
			"fail", `{"error":"no <b>","retryable":false}`},
		"snooze": {nil, Snooze(time.Minute),
			`{"outcome":"snooze","error":"it isn't ready yet","retry_after":"1m"}`, "snooze",
			`{"error":"it isn't ready yet","retry_after":"1m"}`},
		"snooze, wrapped, too short": {nil, fmt.Errorf("no label yet: %w", Snooze(0)),
			`{"outcome":"snooze","error":"no label yet: it isn't ready yet","retry_after":"1s"}`,
			"snooze", `{"error":"no label yet: it isn't ready yet","retry_after":"1s"}`},
		"nothing failed": {nil, Fail(Retry(nil, 1)), `{}`, "complete", `{}`},
		"no JSON": {math.NaN(), nil,
			`{"outcome":"fail","error":"` + notANumber + `"}`,
			"fail", `{"error":"` + notANumber + `","retryable":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			Handle(b.worker, "images", "inspect", func(context.Context, Task[photo]) (any, error) {
				return c.out, c.err
			})
			later := b.envelope(`{}`)
			later["stage"] = "later"
			Handle(b.worker, "images", "later", func(context.Context, Task[photo]) (any, error) {
				return c.out, c.err
			}, AnswerWithin(-1))
			r := b.deliver(`{}`)
			assert.Equal(t, 200, r.status)
			assert.JSONEq(t, c.answer, r.body)
			assert.NotContains(t, r.body, `\u00`)
			r = b.post(signed(t, later))
			assert.Equal(t, []any{202, ""}, []any{r.status, r.body})
			assert.JSONEq(t, c.report, b.asyncflow.next(t, c.verb))
		})
	}
}

// A context that doesn't fit the handler can't get better: the task fails for good, and the handler
// isn't called.
func TestContextThatCantBeRead(t *testing.T) {
	b := setup(t)
	b.inspects(func(context.Context, Task[photo]) (picture, error) { panic("not called") })
	for context, why := range map[string]string{`{"image": 1}`: "image", `[]`: "array",
		`"x"`: "string"} {
		r := b.deliver(context)
		require.Equal(t, 200, r.status)
		require.Contains(t, r.body, `"outcome":"fail"`)
		require.Contains(t, r.body, "the context can't be read")
		require.Contains(t, r.body, why)
	}
}

// None accepts any context.
func TestNone(t *testing.T) {
	b := setup(t)
	Handle(b.worker, "images", "inspect", func(context.Context, Task[None]) (None, error) {
		return None{}, nil
	})
	for _, context := range []string{`1`, `null`, `{"a": [1]}`, `"x"`} {
		require.Equal(t, "{}", b.deliver(context).body)
	}
}

// A panic fails the attempt, and the worker goes on.
func TestPanic(t *testing.T) {
	b := setup(t)
	b.inspects(func(_ context.Context, task Task[photo]) (picture, error) {
		if task.Context.Image == "" {
			panic("no image")
		}
		return picture{1}, nil
	})
	require.JSONEq(t, `{"outcome":"retry","error":"the handler panicked: no image"}`,
		b.deliver(`{}`).body)
	require.JSONEq(t, `{"output":{"width":1}}`, b.deliver(`{"image":"a"}`).body)
}

// An error of any length and bytes can be reported.
func TestLongErrors(t *testing.T) {
	b := setup(t)
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		return picture{}, errors.New("\xff\x00" + strings.Repeat("ü", 10_000))
	})
	var a answer
	require.NoError(t, json.Unmarshal([]byte(b.deliver(`{}`).body), &a))
	require.Len(t, []rune(a.Error), maxError)
	require.True(t, strings.HasSuffix(a.Error, "ü…"))
}

// Later leaves the completion to the holder of the Callback.
func TestLater(t *testing.T) {
	b := setup(t)
	callbacks := make(chan Callback, 1)
	b.inspects(func(_ context.Context, task Task[photo]) (picture, error) {
		callbacks <- task.Callback
		return picture{}, Later
	})
	require.Equal(t, 202, b.deliver(`{}`).status)
	b.close()
	require.Empty(t, b.asyncflow.reports)
	kept, err := json.Marshal(<-callbacks)
	require.NoError(t, err)
	var cb Callback
	require.NoError(t, json.Unmarshal(kept, &cb))
	reporter := NewReporter(nil)
	require.NoError(t, reporter.Complete(t.Context(), cb, picture{7}))
	require.JSONEq(t, `{"output":{"width":7}}`, b.asyncflow.next(t, "complete"))
	require.NoError(t, reporter.Fail(t.Context(), cb, Retry(errors.New("busy"), time.Minute)))
	require.JSONEq(t, `{"error":"busy","retryable":true,"retry_after":"1m"}`,
		b.asyncflow.next(t, "fail"))
	require.NoError(t, reporter.Progress(t.Context(), cb, 40, "page 12"))
	require.JSONEq(t, `{"percent":40,"note":"page 12"}`, b.asyncflow.next(t, "progress"))
	require.ErrorContains(t, reporter.Fail(t.Context(), cb, nil), "err must be an error")
	require.ErrorContains(t, reporter.Complete(t.Context(), cb, math.NaN()), "output")
}

// Invalid names, and a second handler of a stage, are mistakes of the program.
func TestHandlePanics(t *testing.T) {
	b := setup(t)
	work := func(context.Context, Task[None]) (None, error) { return None{}, nil }
	Handle(b.worker, "images", "inspect", work)
	require.PanicsWithValue(t, "worker: images/inspect has a handler already", func() {
		Handle(b.worker, "images", "inspect", work)
	})
	require.PanicsWithValue(t, `worker: the name "Images": must start with a lower-case letter`,
		func() { Handle(b.worker, "Images", "inspect", work) })
	require.PanicsWithValue(t, `worker: the name "": is required`, func() {
		Handle(b.worker, "images", "", work)
	})
}

// Somebody who calls Register needs no keys before.
func TestNewWithoutKeys(t *testing.T) {
	b := setup(t, func(c *Config) { c.Keys = nil })
	b.inspects(func(context.Context, Task[photo]) (picture, error) { return picture{}, nil })
	require.Equal(t, 401, b.deliver(`{}`).status)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"worker.New: key must start with whsec_ or whpk_": {Keys: []string{"secret"}},
		"worker.New: key is empty; it must be whsec_ or whpk_, and base64": {
			Keys: []string{secret, ""}},
		"worker.New: secret holds 3 bytes; it must be 24 to 64": {Keys: []string{secret,
			"whsec_AAAA"}},
		"MaxInFlight is -1; it must not be below 0": {Keys: []string{secret},
			MaxInFlight: -1},
		"MaxBody is -1; it must not be below 0":      {Keys: []string{secret}, MaxBody: -1},
		"Heartbeat is -1ns; it must not be below 0s": {Keys: []string{secret}, Heartbeat: -1},
		"Grace is -1ns; it must not be below 0s":     {Keys: []string{secret}, Grace: -1},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := New(cfg)
			require.EqualError(t, err, want)
		})
	}
}

// A Task that a test made can be handed to a handler.
func TestTaskWithoutWorker(t *testing.T) {
	t.Parallel()
	require.NoError(t, Task[photo]{Context: photo{"a"}}.Progress(t.Context(), 10, ""))
}

var _ http.Handler = (*Worker)(nil)
