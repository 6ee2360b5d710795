package client

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
)

// PutTaskType creates a task type, or a new version of it. If the spec is the same, nothing
// changes, and the answer has the present version.
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

// TaskTypeRolls returns the rolls that may have tasks of a task type, newest first, 100 at most.
// Older says how many more there are.
func (c *Client) TaskTypeRolls(ctx context.Context, name string) (RollList, error) {
	if err := checkPart("type", name); err != nil {
		return RollList{}, err
	}
	return call[RollList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTaskTypeRolls(ctx, name)
	})
}

// PauseTaskType stops the deliveries of a task type, and returns it. The reason may be empty; it is
// shown with the type.
func (c *Client) PauseTaskType(ctx context.Context, name, reason string) (TaskType, error) {
	if err := checkPart("type", name); err != nil {
		return TaskType{}, err
	}
	return call[TaskType](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PauseTaskType(ctx, name, api.Pause{Reason: reason})
	})
}

// ResumeTaskType resumes the deliveries of a task type, and returns it. They grow from few to all
// during ramp; 0: all at once.
func (c *Client) ResumeTaskType(
	ctx context.Context, name string, ramp time.Duration,
) (TaskType, error) {
	if err := checkPart("type", name); err != nil {
		return TaskType{}, err
	}
	return call[TaskType](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ResumeTaskType(ctx, name, api.Resume{Ramp: NewDuration(ramp)})
	})
}

// ReleaseFlowKey releases the tasks of a flow key that wait because one of them has failed, and
// returns how many failed tasks blocked them. A repeated call finds none.
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
