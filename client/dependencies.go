package client

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

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
// the tasks that failed because of this one. Redriven of the answer has these; with DryRun, nothing
// else happens.
func (c *Client) RedriveWith(ctx context.Context, id string, how RedriveOptions) (Task, error) {
	return callOnWith[Task](ctx, c, "id", id, how, c.api.RedriveTaskWithBody)
}
