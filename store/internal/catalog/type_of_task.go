package catalog

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// TypeOf returns the type of a task, if its roll exists; else CodeNotFound.
func (s *Core) TypeOf(ctx context.Context, tenant string, id asyncflow.TaskID) (*Type, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, id.Type)
	if err == nil && id.Position() > t.End { // another node may just have opened a roll
		t, err = s.Refreshed(ctx, t)
	}
	if err == nil && t.Has(id.Position()) {
		return t, nil
	}
	if err == nil || asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return nil, UnknownTask(id)
	}
	return nil, err
}

// UnknownTask is the error for a task that doesn't exist.
func UnknownTask(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no task %s", id)
}
