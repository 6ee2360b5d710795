package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

const (
	running   = `{"id":"t.1.1","type":"t","status":"running","created_at":"2026-11-21T10:00:00Z"}`
	succeeded = `{"id":"t.1.1","type":"t","status":"succeeded","created_at":"2026-11-21T10:00:00Z"}`
)

func attemptEvent(seq int) string {
	const data = `{"seq":%d,"at":"2026-11-21T10:00:00Z","stage":"s","attempt":1,"outcome":"done"}`
	return fmt.Sprintf("event: attempt\nid: %d\ndata: "+data+"\n\n", seq, seq)
}

func taskEvent(doc string) string { return "event: task\ndata: " + doc + "\n\n" }

// streams is a server that sends one text for each connection, the last one again and again. It
// appends the Last-Event-ID of each request to last.
func streams(t *testing.T, last *[]string, texts ...string) *fake {
	n := 0
	return newFake(t, func(w http.ResponseWriter, r *http.Request) {
		*last = append(*last, r.Header.Get("Last-Event-ID"))
		require.Equal(t, "text/event-stream, application/problem+json", r.Header.Get("Accept"))
		text := texts[min(n, len(texts)-1)]
		n++
		switch {
		case text == "503":
			unavailable(w, "0")
		case text == "404":
			writeProblem(w, Problem{Status: 404, Code: "not_found",
				Detail: "there is no task t.1.1"})
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(text))
		}
	})
}

// eventTexts collects the events of Watch, in short, and its error.
func eventTexts(ctx context.Context, c *Client) (all []string, err error) {
	for e, e2 := range c.Watch(ctx, "t.1.1") {
		switch {
		case e2 != nil:
			err = e2
		case e.Attempt != nil:
			all = append(all, fmt.Sprint(e.Attempt.Seq))
		default:
			all = append(all, string(e.Task.Status))
		}
	}
	return all, err
}

// Whatever breaks in between, each event comes once.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		texts []string
		want  []string
		last  []string
		err   string
	}{
		"in one go": {[]string{attemptEvent(1) + taskEvent(running) + ":\n\n" +
			attemptEvent(2) + taskEvent(succeeded)}, []string{"1", "running", "2", "succeeded"},
			[]string{""}, ""},
		"with a pause": {[]string{attemptEvent(1) + taskEvent(running),
			attemptEvent(2) + taskEvent(succeeded)}, []string{"1", "running", "2", "succeeded"},
			[]string{"", "1"}, ""},
		"the same again": {[]string{taskEvent(running), taskEvent(running), taskEvent(succeeded)},
			[]string{"running", "succeeded"}, []string{"", "", ""}, ""},
		"half an event": {[]string{attemptEvent(1) + strings.TrimSuffix(attemptEvent(2), "\n"),
			attemptEvent(2) + taskEvent(succeeded)}, []string{"1", "2", "succeeded"},
			[]string{"", "1"},
			""},
		"503 in between": {[]string{attemptEvent(1), "503", taskEvent(succeeded)},
			[]string{"1", "succeeded"}, []string{"", "1", "1"}, ""},
		"other kinds": {[]string{"event: later\nid: 7\ndata: x\n\nretry: 5\n\n" +
			attemptEvent(8), taskEvent(succeeded)}, []string{"8", "succeeded"}, []string{"", "8"},
			""},
		"carriage returns": {[]string{strings.ReplaceAll(attemptEvent(1)+taskEvent(succeeded), "\n",
			"\r\n")}, []string{"1", "succeeded"}, []string{""}, ""},
		"gone in between": {[]string{attemptEvent(1), "404"}, []string{"1"}, []string{"", "1"},
			"404 not_found: there is no task t.1.1"},
		"never there": {[]string{"404"}, nil, []string{""}, "404 not_found"},
		"no good JSON": {[]string{"event: task\ndata: {\n\n"}, nil, []string{""},
			"can't be read: unexpected end of JSON input"},
		"far too long": {[]string{"data: " + strings.Repeat("x", maxEvent)}, nil, []string{""},
			"it is longer than 33554432 bytes"},
		"too long in many lines": {[]string{strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n",
			33)},
			nil, []string{""}, "it is longer than 33554432 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var last []string
			all, err := eventTexts(t.Context(), streams(t, &last, tc.texts...).client(t))
			require.Equal(t, tc.want, all)
			require.Equal(t, tc.last, last)
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.err)
			}
		})
	}
}

// A watch that can't begin returns the reason. A begun one goes on until the context ends.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	var last []string
	_, err := eventTexts(t.Context(), streams(t, &last, "503").client(t, WithRetries(0)))
	require.ErrorContains(t, err, "503 unavailable")
	require.Len(t, last, 1)

	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, "hello") })
	_, err = eventTexts(t.Context(), f.client(t))
	require.ErrorContains(t, err, "is it an asyncflow server?")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range streams(t, &last, taskEvent(running)).client(t).Watch(ctx, "t.1.1") {
		if err != nil {
			require.Equal(t, context.Canceled, err)
			require.Zero(t, e)
		}
		cancel()
	}

	seen := 0
	for range streams(t, &last,
		taskEvent(running)+taskEvent(succeeded)).client(t).Watch(t.Context(),
		"t.1.1") {
		seen++
		break
	}
	require.Equal(t, 1, seen, "a caller that has enough is left alone")
	for _, err := range f.client(t).Watch(t.Context(), "..") {
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	}
}
