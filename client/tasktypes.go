package client

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
)

// PutTaskType creates a task type, or a new version of it. If the spec is the same, nothing
// changes, and the answer is the present version.
func (c *Client) PutTaskType(
	ctx context.Context, name string, spec TaskTypeSpec,
) (TaskType, error) {
	return c.putTaskType(ctx, name, spec, nil)
}

// CheckTaskType is a dry run of PutTaskType: it returns the same result or error, and changes
// nothing.
func (c *Client) CheckTaskType(
	ctx context.Context, name string, spec TaskTypeSpec,
) (TaskType, error) {
	return c.putTaskType(ctx, name, spec, map[string]string{"dry_run": "true"})
}

func (c *Client) putTaskType(
	ctx context.Context, name string, spec TaskTypeSpec, params map[string]string,
) (TaskType, error) {
	if err := checkPart("type", name); err != nil {
		return TaskType{}, err
	}
	body, err := encode(spec)
	if err != nil {
		return TaskType{}, err
	}
	return call[TaskType](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PutTaskTypeWithBody(ctx, name, nil, contentJSON, bytes.NewReader(body),
			query(params))
	})
}

// TaskTypes returns all task types by name.
func (c *Client) TaskTypes(ctx context.Context) ([]TaskType, error) {
	return gathered(listed[TaskType](ctx, c, nil, c.api.ListTaskTypes))
}

// TaskType returns a task type.
func (c *Client) TaskType(ctx context.Context, name string) (TaskType, error) {
	return callOn[TaskType](ctx, c, "type", name, c.api.GetTaskType)
}

// TaskTypeRolls returns the rolls that may keep tasks of a task type, newest first, 100 at most.
// Older says how many more there are.
func (c *Client) TaskTypeRolls(ctx context.Context, name string) (RollList, error) {
	return callOn[RollList](ctx, c, "type", name, c.api.ListTaskTypeRolls)
}

// TaskTypeVersions returns the versions of a task type that are kept, newest first: the present
// one, and up to 100 before it.
func (c *Client) TaskTypeVersions(ctx context.Context, name string) (TaskTypeVersionList, error) {
	return callOn[TaskTypeVersionList](ctx, c, "type", name, c.api.ListTaskTypeVersions)
}

// TaskTypeVersion returns a version of a task type. To go back to it, put its Spec.
func (c *Client) TaskTypeVersion(
	ctx context.Context, name string, version int,
) (TaskTypeVersion, error) {
	return callOn[TaskTypeVersion](ctx, c, "type", name,
		func(ctx context.Context, name string, edit ...api.RequestEditorFn) (
			*http.Response, error,
		) {
			return c.api.GetTaskTypeVersion(ctx, name, version, edit...)
		})
}

// PauseTaskType stops the deliveries of a task type, and returns it. The reason may be empty; it is
// shown with the type.
func (c *Client) PauseTaskType(ctx context.Context, name, reason string) (TaskType, error) {
	return callOnWith[TaskType](ctx, c, "type", name, api.Pause{Reason: reason},
		c.api.PauseTaskTypeWithBody)
}

// ResumeTaskType resumes the deliveries of a task type, and returns it. They grow from few to all
// during ramp; 0: all at once.
func (c *Client) ResumeTaskType(
	ctx context.Context, name string, ramp time.Duration,
) (TaskType, error) {
	return callOnWith[TaskType](ctx, c, "type", name, api.Resume{Ramp: NewDuration(ramp)},
		c.api.ResumeTaskTypeWithBody)
}

// ReleaseFlowKey releases the tasks of a flow key that wait because one of them failed, and returns
// how many failed tasks blocked them. A repeated call finds none.
func (c *Client) ReleaseFlowKey(ctx context.Context, taskType, flowKey string) (int, error) {
	out, err := callOnWith[api.FlowKeyReleased](ctx, c, "type", taskType,
		api.FlowKeyRelease{FlowKey: flowKey}, c.api.ReleaseFlowKeyWithBody)
	return out.Released, err
}

// DeleteTaskType drops a task type with its finished tasks and its endpoints. If cascade is true,
// its schedules go, too, and tasks that wait for its tasks end as their on_failure says. While live
// tasks exist, or any of these without cascade, the server refuses it with 409.
func (c *Client) DeleteTaskType(ctx context.Context, name string, cascade bool) error {
	if err := checkPart("type", name); err != nil {
		return err
	}
	params := map[string]string{}
	if cascade {
		params["cascade"] = "true"
	}
	_, err := call[noAnswer](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.DeleteTaskType(ctx, name, nil, query(params))
	})
	return err
}
