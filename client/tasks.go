package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

const contentJSON = "application/json"

// Submit submits a task and returns once it is durable. A task with a Key is submitted again when
// there is no answer, or when the server doesn't know the result: within the key's window it is the
// same task. For a task without a Key, a *ConnectionError after the request was sent means that the
// task may have been accepted; see Uncertain.
func (c *Client) Submit(ctx context.Context, task NewTask) (SubmittedTask, error) {
	if err := checkContext(task); err != nil {
		return SubmittedTask{}, err
	}
	body, err := encode(task)
	if err != nil {
		return SubmittedTask{}, err
	}
	ctx, tries := keyed(ctx, task)
	submitted, err := call[SubmittedTask](ctx, c, 0,
		func(ctx context.Context) (*http.Response, error) {
			return c.api.SubmitTaskWithBody(ctx, nil, contentJSON, bytes.NewReader(body))
		})
	return submitted, tries.result(err)
}

// SubmitAndWait is Submit and Wait in one call: it returns the task once it is final, or after d
// with its present status, without an error: see Status.Final. If d is more than a minute, or the
// tenant's share of waiting calls is in use, it asks again as Wait does. If d is 0 or less, only
// ctx bounds the wait. With a Key that stands for an earlier task, it waits for that one: Existing
// of the result says so. An error beside a Task with an ID means that the task was submitted.
func (c *Client) SubmitAndWait(
	ctx context.Context, task NewTask, d time.Duration,
) (Task, error) {
	if err := checkContext(task); err != nil {
		return Task{}, err
	}
	body, err := encode(task)
	if err != nil {
		return Task{}, err
	}
	start := time.Now()
	wait := asyncflow.MaxWait
	if d > 0 {
		wait = max(min(wait, d.Round(time.Millisecond)), time.Millisecond)
	}
	submitCtx, tries := keyed(ctx, task)
	got, err := call[Task](submitCtx, c, wait,
		func(ctx context.Context) (*http.Response, error) {
			return c.api.SubmitTaskWithBody(ctx, nil, contentJSON, bytes.NewReader(body),
				query(map[string]string{"wait": wait.String()}))
		})
	var busy *Error
	switch {
	case errors.As(err, &busy) && busy.Status == http.StatusTooManyRequests:
		submitted, err := c.Submit(ctx, task)
		if err != nil {
			return Task{}, err
		}
		got = Task{ID: submitted.ID, Existing: submitted.Existing, Replaced: submitted.Replaced}
	case err != nil:
		return got, tries.result(err)
	case got.Status.Final():
		return got, nil
	}
	left := d - time.Since(start)
	if d > 0 && left <= 0 {
		return got, nil
	}
	last, err := c.Wait(ctx, got.ID, max(left, 0))
	if last.ID == "" {
		return got, err
	}
	last.Existing = got.Existing
	last.Replaced = got.Replaced
	return last, err
}

// Get returns a task with its present status.
func (c *Client) Get(ctx context.Context, id string) (Task, error) { return c.get(ctx, id, 0) }

// get returns a task once it is final, or after wait with its present status.
func (c *Client) get(ctx context.Context, id string, wait time.Duration) (Task, error) {
	if err := checkPart("id", id); err != nil {
		return Task{}, err
	}
	params := map[string]string{}
	if wait > 0 {
		params["wait"] = wait.String()
	}
	return call[Task](ctx, c, wait, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetTask(ctx, id, nil, query(params))
	})
}

// Wait returns a task once it is final. It asks as often as needed, each time for as long as the
// server waits at most. After d, or when ctx ends, it returns the task as last seen, without an
// error: see Status.Final. An error with a zero Task means that there was no answer before ctx
// ended. If d is 0 or less, only ctx bounds the wait.
func (c *Client) Wait(ctx context.Context, id string, d time.Duration) (Task, error) {
	start := time.Now()
	var last Task
	var busy *Error // the tenant's share of waiting calls is in use
	for {
		asked := time.Now()
		wait := asyncflow.MaxWait
		if d > 0 {
			wait = min(wait, max(d-time.Since(start), 0)).Round(time.Millisecond)
		}
		task, err := c.get(ctx, id, wait)
		switch {
		case err != nil && ctx.Err() != nil && last.ID != "":
			return last, nil
		case wait > 0 && ctx.Err() == nil && errors.As(err, &busy) &&
			busy.Status == http.StatusTooManyRequests:
			sleep.For(ctx, min(max(busy.RetryAfter, leastRound), wait))
			continue
		case err != nil:
			return last, err
		case task.Status.Final() || wait == 0:
			return task, nil
		}
		last = task
		sleep.For(ctx, min(wait, leastRound)-time.Since(asked))
	}
}

// leastRound is the least time between two requests of Wait. It protects a server that answers
// early.
const leastRound = 250 * time.Millisecond

// Attempts returns the journal of a task, oldest first, with all outputs; see AllAttempts.
func (c *Client) Attempts(ctx context.Context, id string) ([]Attempt, error) {
	return gathered(c.AllAttempts(ctx, id, true))
}

// AllAttempts iterates over the journal of a task, oldest first, page by page. Unless outputs is
// true, outputs of more than 1 KiB are left out: see Attempt.OutputBytes and Attempt.OutputExcerpt.
// An error ends the iteration.
func (c *Client) AllAttempts(
	ctx context.Context, id string, outputs bool,
) iter.Seq2[Attempt, error] {
	if err := checkPart("id", id); err != nil {
		return func(yield func(Attempt, error) bool) { yield(Attempt{}, err) }
	}
	send := func(
		ctx context.Context, p *api.ListAttemptsParams, editors ...api.RequestEditorFn,
	) (*http.Response, error) {
		return c.api.ListAttempts(ctx, id, p, editors...)
	}
	params := map[string]string{"outputs": strconv.FormatBool(outputs)}
	return listed[Attempt](ctx, c, params, send)
}

// checkContext refuses a context that isn't JSON: it would make the whole body unreadable.
func checkContext(t NewTask) error {
	if err := asyncflow.CheckJSON(t.Context); err != nil {
		return asyncflow.InvalidField("context", "%v", err)
	}
	return nil
}

// Change changes the priority, the time or the context of a task that is pending or waiting, and
// returns it. For a task that is running or final, the error is CodeConflict. With IfMatch and the
// ETag that ReadETag got from Get, the change is made only if the task hasn't changed or gone on.
func (c *Client) Change(ctx context.Context, id string, patch TaskPatch) (Task, error) {
	return callOnWith[Task](ctx, c, "id", id, patch, c.api.PatchTaskWithBody)
}

// Cancel cancels a task that isn't final, and returns it. The reason may be empty; it is stored
// with the task. For a task that ended otherwise, the error is CodeConflict.
func (c *Client) Cancel(ctx context.Context, id, reason string) (Task, error) {
	return callOnWith[Task](ctx, c, "id", id, api.Cancellation{Reason: reason},
		c.api.CancelTaskWithBody)
}

// Erase erases the contents of a final task, and returns what remains of it. For a task that isn't
// final, the error is CodeConflict.
func (c *Client) Erase(ctx context.Context, id string) (Task, error) {
	return callOn[Task](ctx, c, "id", id, c.api.EraseTask)
}

// Pause keeps further children of a task from beginning, and returns the task. Children that run
// are finished. The reason may be empty. For a task that doesn't wait for children, the error is
// CodeConflict.
func (c *Client) Pause(ctx context.Context, id, reason string) (Task, error) {
	return callOnWith[Task](ctx, c, "id", id, api.TaskPause{Reason: reason},
		c.api.PauseTaskWithBody)
}

// Resume lets the children of a paused task begin again, and returns the task. For a task that
// doesn't wait for children, the error is CodeConflict.
func (c *Client) Resume(ctx context.Context, id string) (Task, error) {
	return callOn[Task](ctx, c, "id", id, c.api.ResumeTask)
}

// Redrive runs a failed or cancelled task again, and returns it. It starts at stage, or where the
// task ended if stage is empty. The stage gets doc as its context, or the context that it had
// before if doc is nil.
func (c *Client) Redrive(ctx context.Context, id, stage string, doc json.RawMessage) (Task, error) {
	return callOnWith[Task](ctx, c, "id", id, api.Redrive{Stage: stage, Context: doc},
		c.api.RedriveTaskWithBody)
}

// Rerun runs a final task again, as a new task, and returns that one. With an idempotency key,
// which becomes that of the new task, it is sent again when there is no answer, and makes one task.
// The key may be empty: then a *ConnectionError after the request was sent means that the task may
// have been made; see Uncertain. For a task that isn't final, the error has CodeConflict.
func (c *Client) Rerun(
	ctx context.Context, id string, how RerunOptions, idempotencyKey string,
) (SubmittedTask, error) {
	if err := checkPart("id", id); err != nil {
		return SubmittedTask{}, err
	}
	if how.Context != nil {
		if err := asyncflow.CheckJSON(how.Context); err != nil {
			return SubmittedTask{}, asyncflow.InvalidField("context", "%v", err)
		}
	}
	body, err := encode(how)
	if err != nil {
		return SubmittedTask{}, err
	}
	ctx, tries := repeatable(ctx, idempotencyKey != "")
	params := &api.RerunTaskParams{IdempotencyKey: idempotencyKey}
	made, err := call[SubmittedTask](ctx, c, 0,
		func(ctx context.Context) (*http.Response, error) {
			return c.api.RerunTaskWithBody(ctx, id, params, contentJSON, bytes.NewReader(body))
		})
	return made, tries.result(err)
}

// SendSignal sends a signal to a task, and returns once it is durable. With an idempotency key it
// is sent again when there is no answer, and counts once. The key may be empty: then a
// *ConnectionError after the request was sent means that the signal may have been sent; see
// Uncertain.
func (c *Client) SendSignal(
	ctx context.Context, signal NewSignal, idempotencyKey string,
) (SentSignal, error) {
	if signal.Data != nil {
		if err := asyncflow.CheckJSON(signal.Data); err != nil {
			return SentSignal{}, asyncflow.InvalidField("data", "%v", err)
		}
	}
	body, err := encode(signal)
	if err != nil {
		return SentSignal{}, err
	}
	ctx, tries := repeatable(ctx, idempotencyKey != "")
	params := &api.SendSignalParams{IdempotencyKey: idempotencyKey}
	sent, err := call[SentSignal](ctx, c, 0,
		func(ctx context.Context) (*http.Response, error) {
			return c.api.SendSignalWithBody(ctx, params, contentJSON, bytes.NewReader(body))
		})
	return sent, tries.result(err)
}

// maxResults is the most results on one page.
const maxResults = 1000

// Results returns a page of how the children of a task's latest fan-out ended, from an index on.
// Next of the page is the index at which the next one begins; 0: there is none.
func (c *Client) Results(ctx context.Context, id string, from int) (ChildResults, error) {
	if err := checkPart("id", id); err != nil {
		return ChildResults{}, err
	}
	return call[ChildResults](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListResults(ctx, id, &api.ListResultsParams{From: from, Limit: maxResults})
	})
}

// Checkpoint returns what the latest attempt of a task left for the next one of its stage. If there
// is nothing, the error is CodeNotFound.
func (c *Client) Checkpoint(ctx context.Context, id string) (TaskCheckpoint, error) {
	return callOn[TaskCheckpoint](ctx, c, "id", id, c.api.GetCheckpoint)
}

// Votes returns the votes on a task that came to a stage with a quorum. For any other task, the
// error is CodeConflict.
func (c *Client) Votes(ctx context.Context, id string) (VoteList, error) {
	return callOn[VoteList](ctx, c, "id", id, c.api.ListVotes)
}

// OnTask returns a dependency on the task with an id, for NewTask.DependsOn. Set OnFailure and
// WaitFor of the result as you need them. An invalid id is CodeInvalid.
func OnTask(id string) (Dependency, error) {
	task, err := asyncflow.ParseTaskID(id)
	return Dependency{Task: task}, err
}

// OnKey returns a dependency on the task of a type with an idempotency key, which may be submitted
// later.
func OnKey(taskType, key string) Dependency { return Dependency{Type: taskType, Key: key} }

// RedriveWith is Redrive with all options: AllChildren for a task that fanned out, Dependents for
// the tasks that failed because of this one. Redriven of the answer lists these; with DryRun,
// nothing else happens.
func (c *Client) RedriveWith(ctx context.Context, id string, how RedriveOptions) (Task, error) {
	return callOnWith[Task](ctx, c, "id", id, how, c.api.RedriveTaskWithBody)
}
