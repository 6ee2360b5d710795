package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// Why the context of a handler is cancelled, as context.Cause tells it.
var (
	ErrCancelled = errors.New("the task was cancelled")
	ErrLost      = errors.New("the attempt is over")
	ErrStopped   = errors.New("the worker is stopping")
)

// Later, as the error of a handler, says that the work goes on elsewhere. No heartbeats
// are sent any more; the task's Callback is good for a Reporter until the deadline.
//
//lint:ignore ST1012 it stands beside Fail and Retry, and says what happens instead of what failed
var Later = errors.New("the completion comes later")

// Fail has the task fail for good: no other attempt could do better. Fail(nil) is nil.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return failError{err}
}

// Retry has the attempt fail, and asks for a pause before the next one: it can stretch the
// retry policy's pause, not shorten it. Retry(nil, d) is nil.
func Retry(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return retryError{err, after}
}

type failError struct{ error }

func (e failError) Unwrap() error { return e.error }

type retryError struct {
	error
	after time.Duration
}

func (e retryError) Unwrap() error { return e.error }

// outcome is what came of a delivery.
type outcome struct {
	kind       string
	output     json.RawMessage // nil: none
	error      string
	retryAfter time.Duration
}

// Kinds of outcomes, as an answer names them.
const (
	kindDone     = "done"
	kindRetry    = "retry"
	kindFail     = "fail"
	kindAccepted = "accepted" // by a handler: Later
)

// outcomeOf returns what a handler's return values mean.
func outcomeOf(ctx context.Context, out any, err error) outcome {
	if err == nil {
		return done(out)
	}
	if errors.Is(err, Later) {
		return outcome{kind: kindAccepted}
	}
	text := err.Error()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		text = fmt.Sprintf("%s (%s)", text, cause)
	}
	o := outcome{kind: kindRetry, error: shorten(text)}
	var f failError
	var r retryError
	switch {
	case errors.As(err, &f):
		o.kind = kindFail
	case errors.As(err, &r):
		o.retryAfter = max(0, r.after)
	}
	return o
}

// done is the outcome with an output. One that isn't JSON would be none the next time.
func done(out any) outcome {
	output, err := api.Encode(out)
	switch {
	case err != nil:
		return outcome{
			kind:  kindFail,
			error: shorten("the output can't be written as JSON: " + err.Error()),
		}
	case string(output) == "null":
		return outcome{kind: kindDone}
	}
	return outcome{kind: kindDone, output: output}
}

// failure is the body of a report that an attempt failed.
func (o outcome) failure() api.Failure {
	retryable := o.kind != kindFail
	return api.Failure{
		Error:      o.error,
		Retryable:  &retryable,
		RetryAfter: asyncflow.Duration(o.retryAfter),
	}
}

// maxError is how much of an error asyncflow takes, in characters.
const maxError = 4096

// shorten returns an error's text as asyncflow takes it.
func shorten(text string) string {
	if r := []rune(text); len(r) > maxError {
		return string(r[:maxError-1]) + "…"
	}
	return text
}
