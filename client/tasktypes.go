package client

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
)

// PutTaskType creates a task type or makes a new version of it. The same spec
// again changes nothing: the answer has the version that it had.
func (c *Client) PutTaskType(
	ctx context.Context, name string, spec TaskTypeSpec,
) (TaskType, error) {
	return c.putTaskType(ctx, name, spec, nil)
}

// CheckTaskType is PutTaskType for show: it returns what that would return, or its
// error, and changes nothing.
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
	get := func(ctx context.Context, page api.RequestEditorFn) (*http.Response, error) {
		return c.api.ListTaskTypes(ctx, nil, page)
	}
	read := func(p TaskTypeList) ([]TaskType, string) { return p.Data, p.NextCursor }
	return gathered(listed(ctx, c, nil, get, read))
}

// TaskType returns a task type.
func (c *Client) TaskType(ctx context.Context, name string) (TaskType, error) {
	if err := checkPart("type", name); err != nil {
		return TaskType{}, err
	}
	return call[TaskType](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetTaskType(ctx, name)
	})
}

// PauseTaskType has nothing of a task type sent any more, and returns it. The reason,
// which may be empty, is shown with it.
func (c *Client) PauseTaskType(ctx context.Context, name, reason string) (TaskType, error) {
	if err := checkPart("type", name); err != nil {
		return TaskType{}, err
	}
	return call[TaskType](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PauseTaskType(ctx, name, api.Pause{Reason: reason})
	})
}

// ResumeTaskType has a paused task type sent again, and returns it: from little to all
// over the time of ramp, or all at once (0).
func (c *Client) ResumeTaskType(
	ctx context.Context, name string, ramp time.Duration,
) (TaskType, error) {
	if err := checkPart("type", name); err != nil {
		return TaskType{}, err
	}
	return call[TaskType](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ResumeTaskType(ctx, name, api.Resume{Ramp: Duration(ramp)})
	})
}

// ReleaseFlowKey lets the tasks of a flow key go on that wait since one of them has
// failed, and returns how many had. A repeated call finds none.
func (c *Client) ReleaseFlowKey(ctx context.Context, taskType, flowKey string) (int, error) {
	if err := checkPart("type", taskType); err != nil {
		return 0, err
	}
	out, err := call[api.FlowKeyReleased](ctx, c, 0,
		func(ctx context.Context) (*http.Response, error) {
			return c.api.ReleaseFlowKey(ctx, taskType, api.FlowKeyRelease{FlowKey: flowKey})
		})
	return out.Released, err
}

// DeleteTaskType drops a task type with its finished tasks and its endpoints.
// It is refused with a 409 while live tasks exist.
func (c *Client) DeleteTaskType(ctx context.Context, name string) error {
	if err := checkPart("type", name); err != nil {
		return err
	}
	_, err := call[none](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.DeleteTaskType(ctx, name)
	})
	return err
}
