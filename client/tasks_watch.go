package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// Event is an event of Watch. One of its fields is set.
type Event struct {
	Attempt *Attempt `json:"attempt,omitempty"` // a row of the task's journal
	Task    *Task    `json:"task,omitempty"`    // the task's present state, without its context
}

// Watch follows a task: first its journal so far and its present state, then each change, up to the
// event of the final task. When the connection breaks, it connects again and continues after the
// last event, until ctx ends. The first connection must succeed. An error comes last: a server that
// refuses ends the iteration, and so does ctx, with its own error.
func (c *Client) Watch(ctx context.Context, id string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := checkPart("id", id); err != nil {
			yield(Event{}, err)
			return
		}
		w := &watch{client: c, id: id, yield: yield}
		for {
			err := w.connect(ctx)
			switch {
			case w.done:
				return
			case ctx.Err() != nil:
				err = ctx.Err()
			case w.connected && (err == nil || isPassing(err)):
				sleep.For(ctx, w.pause(err))
				continue
			}
			yield(Event{}, err)
			return
		}
	}
}

// isPassing reports whether a server refuses a stream only for now.
func isPassing(err error) bool {
	code := asyncflow.CodeOf(err)
	return code == asyncflow.CodeUnavailable || code == asyncflow.CodeRateLimited
}

const (
	// maxEvent bounds an event in bytes: an output, and the document around it.
	maxEvent = 32 << 20
	// silence is how long a stream may be silent. The server writes something every 15 s.
	silence = time.Minute

	reconnectMin = 250 * time.Millisecond
	reconnectMax = 15 * time.Second
)

// watch is one call of Watch.
type watch struct {
	client *Client
	id     string
	yield  func(Event, error) bool

	connected bool   // at least one stream began
	failures  int    // since the last bytes came
	last      string // id of the last event
	shown     string // the last task, as it was sent
	done      bool   // the task is final, or the caller stopped
}

// pause returns how long to wait before the next connection.
func (w *watch) pause(err error) time.Duration {
	w.failures++
	d := min(reconnectMin<<min(w.failures-1, 10), reconnectMax)
	var answer *Error
	if errors.As(err, &answer) {
		d = max(d, min(answer.RetryAfter, time.Minute))
	}
	return d
}

// connect follows one stream to its end. A stream that ends or breaks is no error.
func (w *watch) connect(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer silent.Stop()
	outputs := query(map[string]string{"outputs": "true"})
	resp, err := w.client.api.TaskEvents(ctx, w.id, nil, w.headers, outputs)
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	if err != nil {
		return w.client.noAnswer(outer, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
		if err != nil {
			return w.client.noAnswer(outer, err)
		}
		return ErrorOf(resp, body)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return &ConnectionError{
			URL: w.client.url,
			Err: errors.New("its answer is no stream of events; is it an asyncflow server?"),
		}
	}
	w.connected = true
	return w.read(resp.Body, func() { silent.Reset(silence) })
}

var errSilent = fmt.Errorf("nothing came in %v", silence)

// maxProblem bounds a problem document in bytes.
const maxProblem = 1 << 20

func (w *watch) headers(_ context.Context, r *http.Request) error {
	r.Header.Set("Accept", "text/event-stream, application/problem+json")
	if w.last != "" {
		r.Header.Set("Last-Event-ID", w.last)
	}
	return nil
}

// read reads events until the stream ends. It calls heard for each line. It returns an error only
// for content that would be no better a second time.
func (w *watch) read(body io.Reader, heard func()) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	var e serverEvent
	for !w.done && lines.Scan() {
		heard()
		w.failures = 0
		if line := lines.Text(); line != "" && len(e.data)+len(line) <= maxEvent {
			e.add(line)
			continue
		} else if line != "" {
			return errLongEvent
		}
		if err := w.take(e); err != nil {
			return fmt.Errorf("an event of the task can't be read: %w", err)
		}
		e = serverEvent{}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errLongEvent
	}
	return nil // the stream ended, or the connection broke
}

// errLongEvent ends a watch: the event would be as long a second time.
var errLongEvent = fmt.Errorf(
	"an event of the task can't be read: it is longer than %d bytes", maxEvent)

// take yields an event. It ignores kinds that this client doesn't know, and a task that hasn't
// changed since the connection broke.
func (w *watch) take(e serverEvent) error {
	var out Event
	switch e.kind {
	case "attempt":
		out.Attempt = new(api.Attempt)
		if err := json.Unmarshal([]byte(e.data), out.Attempt); err != nil {
			return err
		}
	case "task":
		if e.data == w.shown {
			return nil
		}
		w.shown, out.Task = e.data, new(api.Task)
		if err := json.Unmarshal([]byte(e.data), out.Task); err != nil {
			return err
		}
	}
	if e.id != "" {
		w.last = e.id
	}
	if out == (Event{}) {
		return nil
	}
	w.done = !w.yield(out, nil) || out.Task != nil && out.Task.Status.Final()
	return nil
}

// serverEvent is a server-sent event.
type serverEvent struct{ kind, id, data string }

// add adds a line to the event. A comment is a line without a name, and ignored.
func (e *serverEvent) add(line string) {
	name, value, _ := strings.Cut(line, ":")
	switch value = strings.TrimPrefix(value, " "); name {
	case "event":
		e.kind = value
	case "id":
		e.id = value
	case "data":
		e.data += value
	}
}
