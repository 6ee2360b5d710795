package client

import (
	"bytes"
	"context"
	"net/http"
)

// PutTaskType creates a task type or makes a new version of it. The same spec
// again changes nothing: the answer has the version that it had.
func (c *Client) PutTaskType(ctx context.Context, name string, spec TaskTypeSpec) (TaskType, error) {
	if err := checkPart("type", name); err != nil {
		return TaskType{}, err
	}
	body, err := encode(spec)
	if err != nil {
		return TaskType{}, err
	}
	return call[TaskType](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PutTaskTypeWithBody(ctx, name, nil, contentJSON, bytes.NewReader(body))
	})
}

// TaskTypes returns all task types by name.
func (c *Client) TaskTypes(ctx context.Context) ([]TaskType, error) {
	list, err := call[TaskTypeList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTaskTypes(ctx)
	})
	return list.Data, err
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
