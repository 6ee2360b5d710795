package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// FinalEvent is the event of the end of a task, as on_final sends it. ID is the same in each
// delivery of the event; a task that is redriven ends with another one.
type FinalEvent = asyncflow.FinalEvent

// FinalTask is a task at its end: its Status, and its Result or Error.
type FinalTask = asyncflow.FinalTask

// FinalHandler handles an event. After an error the event comes again. An event may come again also
// after it was handled, so do what follows from it once for each ID.
type FinalHandler func(ctx context.Context, e FinalEvent) error

// HandleFinal sets the function that handles events of on_final. They come to the worker's URL like
// deliveries, under any path, and are verified with the same keys: give the secret of on_final, or
// the key of its target's endpoint, in Config.Keys. A worker that only handles events needs no
// other handler.
func (w *Worker) HandleFinal(handle FinalHandler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.final = handle
}

// isFinal reports whether a request carries the event of an end. There is no dot in the name of a
// task type.
func (e envelope) isFinal() bool { return strings.HasPrefix(e.Type, "task.") }

// serveFinal answers an event once it is handled.
func (w *Worker) serveFinal(
	rw http.ResponseWriter, r *http.Request, signed signing.Request, body []byte,
) {
	var e FinalEvent
	err := json.Unmarshal(body, &e)
	w.mu.Lock()
	handle := w.final
	w.mu.Unlock()
	switch {
	case err != nil || e.ID == "" || e.Data.ID == "" || !e.Data.Status.Final():
		w.refuse(rw, r, &refused{http.StatusBadRequest,
			"the body is no event: it needs id, and data with id and status"})
		return
	case handle == nil:
		w.refuse(rw, r, &refused{http.StatusNotFound,
			"this worker has no handler for events: see HandleFinal"})
		return
	case !w.admit(1):
		w.refuse(rw, r, &refused{http.StatusServiceUnavailable,
			"this worker has no capacity left"})
		return
	}
	defer w.release()
	start := time.Now()
	if err := w.callFinal(r.Context(), handle, e); err != nil {
		w.refuse(rw, r, &refused{http.StatusInternalServerError, err.Error()})
		return
	}
	w.cfg.Log.Info("event", "webhook_id", signed.ID, "task", e.Data.ID,
		"status", string(e.Data.Status), "duration", time.Since(start))
	rw.WriteHeader(http.StatusNoContent)
}

// callFinal calls a handler, and returns its panic as an error.
func (w *Worker) callFinal(
	ctx context.Context, handle FinalHandler, e FinalEvent,
) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			w.cfg.Log.Error("the handler of events panicked", "event", e.ID, "panic", p, "stack",
				string(debug.Stack()))
		}
	}()
	return handle(ctx, e)
}
