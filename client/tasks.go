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
)

const contentJSON = "application/json"

// Submit submits a task and returns once it is durable. One with a Key is submitted
// again when there is no answer, or the server can't tell: it is the same task, as long
// as the key's window lasts. Without a Key it is unknown after a *ConnectionError that was
// sent whether the task was accepted; see Uncertain.
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

// Get returns a task as it stands.
func (c *Client) Get(ctx context.Context, id string) (Task, error) { return c.get(ctx, id, 0) }

// get returns a task when it is final, or as it stands after wait.
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

// Wait returns a task once it is final. It asks as often as it takes, each time
// for as long as the server waits at most. After d, or when ctx is over, it
// returns the task as it stood last, without an error: see Status.Final. An
// error with a zero Task means that there was no answer at all before ctx was
// over. d of 0 or less means: no bound but the context's.
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
			pause(ctx, min(max(busy.RetryAfter, leastRound), wait))
			continue
		case err != nil:
			return last, err
		case task.Status.Final() || wait == 0:
			return task, nil
		}
		last = task
		pause(ctx, min(wait, leastRound)-time.Since(asked))
	}
}

// leastRound is the least time between two questions of Wait: a server that
// stops answers early, and is not to be flooded.
const leastRound = 250 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// List returns a page of the tasks of a type, newest first, without their
// contexts and results. TaskList.NextCursor is the cursor of the next page,
// empty on the last; a page may have few tasks, or none, and not be the last.
func (c *Client) List(ctx context.Context, p ListParams) (TaskList, error) {
	params := map[string]string{"type": p.Type, "status": string(p.Status), "stage": p.Stage,
		"error": p.Error,
		"since": timeParam(p.Since), "until": timeParam(p.Until), "cursor": p.Cursor}
	if p.Limit != 0 {
		params["limit"] = strconv.Itoa(p.Limit)
	}
	return call[TaskList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTasks(ctx, nil, query(params))
	})
}

func timeParam(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// All goes through all tasks that List would return, page by page. An error
// ends it.
func (c *Client) All(ctx context.Context, p ListParams) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		for {
			page, err := c.List(ctx, p)
			if err != nil {
				yield(Task{}, err)
				return
			}
			for _, t := range page.Data {
				if !yield(t, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			p.Cursor = page.NextCursor
		}
	}
}

// Attempts returns the journal of a task, oldest first, with all outputs; see AllAttempts.
func (c *Client) Attempts(ctx context.Context, id string) ([]Attempt, error) {
	return gathered(c.AllAttempts(ctx, id, true))
}

// AllAttempts goes through the journal of a task, oldest first, page by page. Without
// outputs, those of more than 1 KiB are left out: see Attempt.OutputBytes and
// Attempt.OutputExcerpt. An error ends it.
func (c *Client) AllAttempts(
	ctx context.Context, id string, outputs bool,
) iter.Seq2[Attempt, error] {
	if err := checkPart("id", id); err != nil {
		return func(yield func(Attempt, error) bool) { yield(Attempt{}, err) }
	}
	get := func(ctx context.Context, page api.RequestEditorFn) (*http.Response, error) {
		return c.api.ListAttempts(ctx, id, nil, page)
	}
	params := map[string]string{"outputs": strconv.FormatBool(outputs)}
	read := func(p AttemptList) ([]Attempt, string) { return p.Data, p.NextCursor }
	return listed(ctx, c, params, get, read)
}

// checkContext refuses a context that would not even make a JSON body.
func checkContext(t NewTask) error {
	if err := asyncflow.CheckJSON(t.Context); err != nil {
		return asyncflow.InvalidField("context", "%v", err)
	}
	return nil
}

// Change changes the priority or the time of a task that is pending or waiting, and
// returns it. One that is running or final is CodeConflict.
func (c *Client) Change(ctx context.Context, id string, patch TaskPatch) (Task, error) {
	if err := checkPart("id", id); err != nil {
		return Task{}, err
	}
	return call[Task](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PatchTask(ctx, id, patch)
	})
}

// Cancel ends a task that is not final and returns it; the reason, which may be
// empty, is kept with it. A task that ended otherwise is CodeConflict.
func (c *Client) Cancel(ctx context.Context, id, reason string) (Task, error) {
	if err := checkPart("id", id); err != nil {
		return Task{}, err
	}
	return call[Task](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.CancelTask(ctx, id, api.Cancellation{Reason: reason})
	})
}

// Redrive sets a failed or cancelled task going again and returns it. stage "" is
// where it ended; context nil is what that stage was sent with before.
func (c *Client) Redrive(ctx context.Context, id, stage string, doc json.RawMessage) (Task, error) {
	if err := checkPart("id", id); err != nil {
		return Task{}, err
	}
	return call[Task](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.RedriveTask(ctx, id, api.Redrive{Stage: stage, Context: doc})
	})
}
