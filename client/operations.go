package client

import (
	"context"
	"net/http"

	"github.com/asyncflow/asyncflow/client/api"
)

// The states of an operation. All but the first are final.
const (
	OperationRunning = api.OperationStateRunning
	OperationDone    = api.OperationStateDone
	OperationStopped = api.OperationStateStopped
	OperationFailed  = api.OperationStateFailed
)

// CancelAll starts an operation that cancels all tasks that b selects, in the background, and
// returns it. It leaves out tasks that are submitted later.
func (c *Client) CancelAll(ctx context.Context, b BulkCancellation) (Operation, error) {
	b.DryRun = false
	return call[Operation](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.CancelTasks(ctx, b)
	})
}

// CountCancel returns how many tasks CancelAll would cancel now.
func (c *Client) CountCancel(ctx context.Context, b BulkCancellation) (int64, error) {
	b.DryRun = true
	n, err := call[api.Count](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.CancelTasks(ctx, b)
	})
	return n.Count, err
}

// RedriveAll starts an operation that redrives all tasks that b selects, each once, in the
// background, and returns it. It leaves out tasks that end later.
func (c *Client) RedriveAll(ctx context.Context, b BulkRedrive) (Operation, error) {
	b.DryRun = false
	return call[Operation](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.RedriveTasks(ctx, b)
	})
}

// CountRedrive returns how many tasks RedriveAll would redrive now.
func (c *Client) CountRedrive(ctx context.Context, b BulkRedrive) (int64, error) {
	b.DryRun = true
	n, err := call[api.Count](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.RedriveTasks(ctx, b)
	})
	return n.Count, err
}

// PrioritizeAll starts an operation that changes the priority of all pending and waiting tasks that
// b selects, in the background, and returns it. It leaves out tasks that are submitted later.
func (c *Client) PrioritizeAll(ctx context.Context, b BulkPriority) (Operation, error) {
	b.DryRun = false
	return call[Operation](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PrioritizeTasks(ctx, b)
	})
}

// CountPrioritize returns of how many tasks PrioritizeAll would change the priority now.
func (c *Client) CountPrioritize(ctx context.Context, b BulkPriority) (int64, error) {
	b.DryRun = true
	n, err := call[api.Count](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PrioritizeTasks(ctx, b)
	})
	return n.Count, err
}

// CountAll starts an operation that counts all tasks that b selects, in the background, and returns
// it. When it is done, its Done is their number. It leaves out tasks that are submitted later. If
// too many counts run, the error has CodeConflict.
func (c *Client) CountAll(ctx context.Context, b BulkCount) (Operation, error) {
	return call[Operation](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.CountTasks(ctx, b)
	})
}

// Operations returns the running operations and all of the last 30 days, newest first.
func (c *Client) Operations(ctx context.Context) ([]Operation, error) {
	get := func(ctx context.Context, page api.RequestEditorFn) (*http.Response, error) {
		return c.api.ListOperations(ctx, nil, page)
	}
	read := func(p OperationList) ([]Operation, string) { return p.Data, p.NextCursor }
	return gathered(listed(ctx, c, nil, get, read))
}

// Operation returns an operation with its progress.
func (c *Client) Operation(ctx context.Context, id string) (Operation, error) {
	if err := checkPart("id", id); err != nil {
		return Operation{}, err
	}
	return call[Operation](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetOperation(ctx, id)
	})
}

// StopOperation stops an operation and returns it; from then on it changes no task. An operation
// that has ended is returned unchanged.
func (c *Client) StopOperation(ctx context.Context, id string) (Operation, error) {
	if err := checkPart("id", id); err != nil {
		return Operation{}, err
	}
	return call[Operation](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.StopOperation(ctx, id)
	})
}
