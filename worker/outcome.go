package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// The causes with which a handler's context is cancelled; see context.Cause.
var (
	ErrCancelled = errors.New("the task was cancelled")
	ErrLost      = errors.New("the attempt is over")
	ErrStopped   = errors.New("the worker is stopping")
)

// Later, as the error of a handler, says that the work goes on elsewhere. The Worker sends no more
// heartbeats for it. A Reporter can use the task's Callback until the deadline.
//
//lint:ignore ST1012 it belongs to Fail and Retry, and is not a failure
var Later = errors.New("the completion comes later")

// Fail makes the task fail for good: no other attempt could do better. Fail(nil) is nil.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return failError{err}
}

// Retry makes the attempt fail, and asks for a pause before the next one. It can lengthen the pause
// of the retry policy, but not shorten it. Retry(nil, d) is nil.
func Retry(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return retryError{err, after}
}

// Snooze, as the error of a handler, says that the task isn't ready yet: it is delivered again
// after a pause of 1 s to 30 days, and no attempt is counted. The stage's max_snooze ends that. To
// say why, wrap it: fmt.Errorf("no label yet: %w", worker.Snooze(time.Minute)).
func Snooze(after time.Duration) error {
	return snoozeError{min(max(after, asyncflow.MinSnoozeAfter), asyncflow.MaxSnoozeAfter)}
}

// Step, as the error of a handler, says how a task goes on from a stage that is done: the output
// counts. The stage's next must allow it. A Reporter takes it, too.
type Step struct {
	next   string
	finish bool
	spawn  *[]client.SpawnedTask // a pointer keeps a Step comparable
	join   *asyncflow.Join       // nil: the task doesn't wait for them
}

// Next is the Step to a stage, forwards or backwards: return output, worker.Next("review").
func Next(stage string) Step { return Step{next: stage} }

// Finish is the Step to the end: the task succeeds with the output.
var Finish = Step{finish: true}

// Spawn is the Step that starts tasks: return output, worker.Spawn(tasks...). They exist if the
// outcome counts: all of them once, or none. Their types must be in the stage's spawn.
func Spawn(tasks ...client.SpawnedTask) Step { return Step{}.Spawn(tasks...) }

// Spawn adds tasks to start to a Step: worker.Next("review").Spawn(tasks...).
func (s Step) Spawn(tasks ...client.SpawnedTask) Step {
	all := append(slices.Clone(s.spawned()), tasks...)
	s.spawn = &all
	return s
}

// Join makes the task wait for the tasks that the Step starts. The next stage gets their results,
// as after a fan-out, in place of the handler's output, which doesn't count:
//
//	return nil, worker.Spawn(tasks...).Join(worker.JoinOptions{MaxParallel: 20})
//
// Without options it uses the defaults of a fan-out.
func (s Step) Join(options ...JoinOptions) Step {
	s.join = &asyncflow.Join{}
	if len(options) > 0 {
		s.join = &options[0]
	}
	return s
}

// JoinOptions say how a task waits for the tasks that it starts. The zero value stands for the
// defaults of a fan-out.
type JoinOptions = asyncflow.Join

// spawned returns the tasks to start.
func (s Step) spawned() []client.SpawnedTask {
	if s.spawn == nil {
		return nil
	}
	return *s.spawn
}

// Error makes a Step an error.
func (s Step) Error() string {
	switch {
	case s.finish:
		return "the task is finished"
	case s.next == "":
		return "the task starts others"
	}
	return "the task goes on with the stage " + s.next
}

type snoozeError struct{ after time.Duration }

func (e snoozeError) Error() string { return "it isn't ready yet" }

type failError struct{ error }

func (e failError) Unwrap() error { return e.error }

type retryError struct {
	error
	after time.Duration
}

func (e retryError) Unwrap() error { return e.error }

// outcome is the outcome of a delivery.
type outcome struct {
	kind       string
	output     json.RawMessage // nil: none
	error      string
	retryAfter time.Duration
	step       Step // of a done stage; zero: as the type says
}

// Kinds of outcomes, as answers name them.
const (
	kindDone     = "done"
	kindRetry    = "retry"
	kindSnooze   = "snooze"
	kindFail     = "fail"
	kindAccepted = "accepted" // a handler returned Later
)

// outcomeOf returns the outcome that a handler's return values mean.
func outcomeOf(ctx context.Context, out any, err error) outcome {
	if err == nil {
		return done(out)
	}
	if step := (Step{}); errors.As(err, &step) {
		return done(out).to(step)
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
	var s snoozeError
	switch {
	case errors.As(err, &f):
		o.kind = kindFail
	case errors.As(err, &r):
		o.retryAfter = max(0, r.after)
	case errors.As(err, &s):
		o.kind, o.retryAfter = kindSnooze, s.after
	}
	return o
}

// to returns the outcome of a done stage with a step. Tasks that aren't JSON fail the task for
// good, as such an output does.
func (o outcome) to(step Step) outcome {
	if o.kind != kindDone {
		return o
	}
	started := append(slices.Clone(o.step.spawned()), step.spawned()...)
	join := o.step.join
	if step.join != nil {
		join = step.join
	}
	if step.next != "" || step.finish {
		o.step = step
	}
	if o.step.join = join; join != nil { // the results are in its place
		o.output = nil
	}
	if len(started) == 0 {
		return o
	}
	if _, err := api.Encode(started); err != nil {
		return outcome{kind: kindFail,
			error: shorten("the tasks to start can't be written as JSON: " + err.Error())}
	}
	o.step.spawn = &started
	return o
}

// done returns the outcome of an output. An output that isn't JSON fails the task for good: another
// attempt would be no better.
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
		RetryAfter: asyncflow.NewDuration(o.retryAfter),
	}
}

// maxError is how many characters of an error asyncflow stores.
const maxError = 4096

// shorten cuts an error's text to maxError characters.
func shorten(text string) string {
	if r := []rune(text); len(r) > maxError {
		return string(r[:maxError-1]) + "…"
	}
	return text
}
