package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Task is a delivery as a handler gets it.
type Task[In any] struct {
	ID                   string // the same in all stages and attempts
	Type, Stage          string
	TypeVersion          int       // of the task type; 0 in a test
	Attempt, MaxAttempts int       // of this stage; 1 is the first
	Seq                  int       // the fencing number: it grows with every delivery of the task
	Deadline             time.Time // when reports stop counting; heartbeats postpone it
	Context              In        // the task's context, or the latest output of an earlier stage
	// Checkpoint is what an earlier attempt of the stage left with SaveCheckpoint; nil: nothing.
	Checkpoint json.RawMessage
	// Links are the URLs by which somebody decides about a wait that may come next, by the names of
	// the stage and the decision: Links["review"]["approve"].
	Links map[string]map[string]string
	// User, Tags, Metadata and Trace are what the task was submitted with.
	User     string
	Tags     []string
	Metadata map[string]string
	Trace    string // a W3C traceparent
	// Traceparent is the W3C traceparent to go on from: that of this attempt, or Trace if the
	// attempt isn't recorded; "": there is none.
	Traceparent string
	Callback    Callback // to report later
	FanOut      *FanOut  // if it is a child of another task; nil otherwise
	Test        bool     // a test delivery: its result goes nowhere

	// Input is the context as the task was submitted with it, and Outputs are the latest outputs of
	// stages, if the stage's deliver asks for them. Documents that were too long for the
	// delivery are not here: the functions Input and Output get them, too, and read all into a
	// type.
	Input   json.RawMessage
	Outputs map[string]json.RawMessage

	linked []string // the documents that were too long for the delivery
	run    *run     // nil for a Task that a test made
}

// FanOut says which part of another task's work a child is.
type FanOut struct {
	Parent string          `json:"parent"` // the id of that task
	Index  int             `json:"index"`  // from 0
	Count  int             `json:"count"`  // of all children
	Shared json.RawMessage `json:"shared"` // what the children share; nil: nothing
}

// Progress reports the progress of the work: 0 to 100, and a message. An error is no reason to
// stop: if the attempt is over, the handler's context ends. It does nothing for a Task that a test
// made.
func (t Task[In]) Progress(ctx context.Context, percent int, note string) error {
	if t.run == nil {
		return nil
	}
	err := t.run.worker.reporter.Progress(ctx, t.Callback, percent, note)
	if errors.Is(err, ErrLost) {
		t.run.askNow()
	}
	return err
}

// SaveCheckpoint leaves v, as JSON, for the next attempt of the stage, in place of what was left
// before. It is a heartbeat, too. An error is no reason to stop: if the attempt is over, the
// handler's context ends. It does nothing for a Task that a test made.
func (t Task[In]) SaveCheckpoint(ctx context.Context, v any) error {
	if t.run == nil {
		return nil
	}
	err := t.run.worker.reporter.Checkpoint(ctx, t.Callback, v)
	if errors.Is(err, ErrLost) || errors.Is(err, ErrCancelled) {
		t.run.askNow()
	}
	return err
}

// None stands for a context or an output that is absent.
type None struct{}

// MarshalJSON writes null, which means that there is no output: the context passes on.
func (None) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// UnmarshalJSON accepts any context and ignores it.
func (*None) UnmarshalJSON([]byte) error { return nil }

// Option changes the answers to the deliveries of one handler.
type Option func(*handler)

// AnswerWithin overrides Config.AnswerWithin for one handler.
func AnswerWithin(d time.Duration) Option { return func(h *handler) { h.answerWithin = d } }

// TimeLimit cancels the context of the handler after d, so that heartbeats don't keep a hanging
// handler alive. By default there is no limit.
func TimeLimit(d time.Duration) Option { return func(h *handler) { h.timeLimit = d } }

// Handle registers a function for the deliveries of a stage. Each delivery runs in a goroutine of
// its own, even if it comes in a batch. A context that can't be read into an In fails the task for
// good. Handle panics if the names are invalid, or there is a handler for the stage already.
func Handle[In, Out any](
	w *Worker, taskType, stage string, work func(context.Context, Task[In]) (Out, error),
	opts ...Option,
) {
	w.add(taskType, stage, opts, func(runs []*run) {
		for _, r := range runs {
			go func() { r.finish(workOn(r.ctx, r, work)) }()
		}
	})
}

// workOn runs a handler for a delivery.
func workOn[In, Out any](
	ctx context.Context, r *run, work func(context.Context, Task[In]) (Out, error),
) (o outcome) {
	defer recovered(r, &o)
	task, err := taskOf[In](r)
	if err != nil {
		return outcomeOf(ctx, nil, err)
	}
	out, err := work(ctx, task)
	return outcomeOf(ctx, out, err)
}

// Result is the result of one task of a batch.
type Result[Out any] struct {
	Output Out
	Err    error
}

// HandleBatch registers a function for the deliveries of a stage that arrive together: up to the
// endpoint's batch.max_tasks in a call, or one if the endpoint takes no batches. The results are in
// the order of the tasks; a missing result is a failure. The context is cancelled when no task of
// the batch needs work any more. Otherwise it is like Handle.
func HandleBatch[In, Out any](
	w *Worker, taskType, stage string, work func(context.Context, []Task[In]) []Result[Out],
	opts ...Option,
) {
	w.add(taskType, stage, opts, func(runs []*run) {
		go func() {
			ctx, cancel := joinContexts(runs)
			defer cancel()
			for i, o := range workOnAll(ctx, runs, work) {
				go runs[i].finish(o)
			}
		}()
	})
}

// workOnAll runs a handler for the deliveries that can be read, and returns the outcome of each.
func workOnAll[In, Out any](
	ctx context.Context, runs []*run, work func(context.Context, []Task[In]) []Result[Out],
) []outcome {
	outcomes := make([]outcome, len(runs))
	var tasks []Task[In]
	var at []int // index into runs of each task
	for i, r := range runs {
		task, err := taskOf[In](r)
		if err != nil {
			outcomes[i] = outcomeOf(ctx, nil, err)
			continue
		}
		tasks = append(tasks, task)
		at = append(at, i)
	}
	if len(tasks) == 0 {
		return outcomes
	}
	var results []Result[Out]
	var panicked outcome
	func() {
		defer recovered(runs[at[0]], &panicked)
		results = work(ctx, tasks)
	}()
	for n, i := range at {
		switch {
		case panicked.kind != "":
			outcomes[i] = panicked
		case n < len(results):
			outcomes[i] = outcomeOf(ctx, results[n].Output, results[n].Err)
		default:
			outcomes[i] = outcomeOf(ctx, nil,
				errors.New("the handler returned no result for this task"))
		}
	}
	return outcomes
}

// recovered turns a panic into the outcome.
func recovered(r *run, o *outcome) {
	if p := recover(); p != nil {
		r.log.Error("the handler panicked", "panic", p, "stack", string(debug.Stack()))
		*o = outcome{kind: kindRetry, error: shorten(fmt.Sprintf("the handler panicked: %v", p))}
	}
}

func taskOf[In any](r *run) (Task[In], error) {
	d := r.delivery
	t := Task[In]{
		ID:          d.TaskID,
		Type:        d.Type,
		TypeVersion: d.TypeVersion,
		Stage:       d.Stage,
		Attempt:     d.Attempt,
		MaxAttempts: d.MaxAttempts,
		Seq:         d.Seq,
		Deadline:    d.Deadline,
		Checkpoint:  d.Checkpoint,
		Links:       d.Links,
		User:        d.User,
		Tags:        d.Tags,
		Metadata:    d.Metadata,
		Trace:       d.Trace,
		Traceparent: cmp.Or(d.Traceparent, d.Trace),
		Callback:    d.Callback,
		FanOut:      d.FanOut,
		Test:        d.Test,
		Input:       d.Input,
		Outputs:     d.Outputs,
		linked:      d.ByURL,
		run:         r,
	}
	t.dropLinks()
	if len(d.Context) > 0 {
		if err := json.Unmarshal(d.Context, &t.Context); err != nil {
			return t, Fail(fmt.Errorf("the context can't be read: %w", err))
		}
	}
	return t, nil
}

// handler works on the deliveries of a stage.
type handler struct {
	answerWithin time.Duration
	timeLimit    time.Duration
	start        func(runs []*run) // starts work on the runs; each is finished later
}

// stageName names the stage that a delivery is for.
type stageName struct{ taskType, stage string }

func (w *Worker) add(taskType, stage string, opts []Option, start func([]*run)) {
	for _, name := range []string{taskType, stage} {
		if err := asyncflow.CheckName(name); err != nil {
			panic(fmt.Sprintf("worker: the name %q: %v", name, err))
		}
	}
	h := &handler{answerWithin: w.cfg.AnswerWithin, start: start}
	for _, o := range opts {
		o(h)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := stageName{taskType, stage}
	if w.handlers[name] != nil {
		panic(fmt.Sprintf("worker: %s/%s has a handler already", taskType, stage))
	}
	w.handlers[name] = h
}
