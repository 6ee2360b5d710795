package store

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// TypeOf returns the type of a task, if its roll exists; else CodeNotFound.
func (s *Store) TypeOf(ctx context.Context, tenant string, id asyncflow.TaskID) (*Type, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, id.Type)
	if err == nil && id.Position() > t.End { // another node may have opened a roll this second
		t, err = s.refreshed(ctx, t)
	}
	if err == nil && t.Has(id.Position()) {
		return t, nil
	}
	if err == nil || asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return nil, unknownTask(id)
	}
	return nil, err
}

func unknownTask(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no task %s", id)
}
