package client

import (
	"context"

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
	return callWith[Operation](ctx, c, b, c.api.CancelTasksWithBody)
}

// CountCancel returns how many tasks CancelAll would cancel now.
func (c *Client) CountCancel(ctx context.Context, b BulkCancellation) (int64, error) {
	b.DryRun = true
	return counted(callWith[api.Count](ctx, c, b, c.api.CancelTasksWithBody))
}

// RedriveAll starts an operation that redrives all tasks that b selects, each once, in the
// background, and returns it. It leaves out tasks that end later.
func (c *Client) RedriveAll(ctx context.Context, b BulkRedrive) (Operation, error) {
	b.DryRun = false
	return callWith[Operation](ctx, c, b, c.api.RedriveTasksWithBody)
}

// CountRedrive returns how many tasks RedriveAll would redrive now.
func (c *Client) CountRedrive(ctx context.Context, b BulkRedrive) (int64, error) {
	b.DryRun = true
	return counted(callWith[api.Count](ctx, c, b, c.api.RedriveTasksWithBody))
}

// PrioritizeAll starts an operation that changes the priority of all pending and waiting tasks that
// b selects, in the background, and returns it. It leaves out tasks that are submitted later.
func (c *Client) PrioritizeAll(ctx context.Context, b BulkPriority) (Operation, error) {
	b.DryRun = false
	return callWith[Operation](ctx, c, b, c.api.PrioritizeTasksWithBody)
}

// CountPrioritize returns of how many tasks PrioritizeAll would change the priority now.
func (c *Client) CountPrioritize(ctx context.Context, b BulkPriority) (int64, error) {
	b.DryRun = true
	return counted(callWith[api.Count](ctx, c, b, c.api.PrioritizeTasksWithBody))
}

// DelayAll starts an operation that changes when all pending and waiting tasks that b selects run,
// in the background, and returns it. It leaves out tasks that are submitted later. All of them get
// one time: a Delay counts from this call.
func (c *Client) DelayAll(ctx context.Context, b BulkDelay) (Operation, error) {
	b.DryRun = false
	return callWith[Operation](ctx, c, b, c.api.DelayTasksWithBody)
}

// CountDelay returns of how many tasks DelayAll would change the time now.
func (c *Client) CountDelay(ctx context.Context, b BulkDelay) (int64, error) {
	b.DryRun = true
	return counted(callWith[api.Count](ctx, c, b, c.api.DelayTasksWithBody))
}

// RerunAll starts an operation that runs all final tasks that b selects again, each as one new
// task, in the background, and returns it. It leaves out tasks that end later.
func (c *Client) RerunAll(ctx context.Context, b BulkRerun) (Operation, error) {
	b.DryRun = false
	return callWith[Operation](ctx, c, b, c.api.RerunTasksWithBody)
}

// CountRerun returns how many tasks RerunAll would run again now.
func (c *Client) CountRerun(ctx context.Context, b BulkRerun) (int64, error) {
	b.DryRun = true
	return counted(callWith[api.Count](ctx, c, b, c.api.RerunTasksWithBody))
}

// EraseAll starts an operation that erases the contents of all final tasks that b selects, in the
// background, and returns it. It leaves out tasks that end later.
func (c *Client) EraseAll(ctx context.Context, b BulkErasure) (Operation, error) {
	b.DryRun = false
	return callWith[Operation](ctx, c, b, c.api.EraseTasksWithBody)
}

// CountErase returns how many tasks EraseAll would erase now.
func (c *Client) CountErase(ctx context.Context, b BulkErasure) (int64, error) {
	b.DryRun = true
	return counted(callWith[api.Count](ctx, c, b, c.api.EraseTasksWithBody))
}

func counted(n api.Count, err error) (int64, error) { return n.Count, err }

// CountAll starts an operation that counts all tasks that b selects, in the background, and returns
// it. When it is done, its Done is their number. It leaves out tasks that are submitted later. If
// too many counts run, the error is CodeConflict.
func (c *Client) CountAll(ctx context.Context, b BulkCount) (Operation, error) {
	return callWith[Operation](ctx, c, b, c.api.CountTasksWithBody)
}

// Operations returns the running operations and all of the last 30 days, newest first.
func (c *Client) Operations(ctx context.Context) ([]Operation, error) {
	return gathered(listed[Operation](ctx, c, nil, c.api.ListOperations))
}

// Operation returns an operation with its progress.
func (c *Client) Operation(ctx context.Context, id string) (Operation, error) {
	return callOn[Operation](ctx, c, "id", id, c.api.GetOperation)
}

// StopOperation stops an operation and returns it; from then on it changes no task. An operation
// that is over is returned unchanged.
func (c *Client) StopOperation(ctx context.Context, id string) (Operation, error) {
	return callOn[Operation](ctx, c, "id", id, c.api.StopOperation)
}
