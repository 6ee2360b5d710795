package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// ListTaskTypes lists the tenant's task types.
func (s *Server) ListTaskTypes(ctx context.Context, _ ListTaskTypesRequestObject) (ListTaskTypesResponseObject, error) {
	types, err := s.cfg.Store.TaskTypes(ctx, principalOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	data := make([]TaskType, len(types))
	for i, t := range types {
		data[i] = taskTypeOut(t)
	}
	return ListTaskTypes200JSONResponse{Data: data}, nil
}

// GetTaskType returns one task type.
func (s *Server) GetTaskType(ctx context.Context, r GetTaskTypeRequestObject) (GetTaskTypeResponseObject, error) {
	t, err := s.cfg.Store.TaskType(ctx, principalOf(ctx).Tenant, r.Type)
	if err != nil {
		return nil, err
	}
	return GetTaskType200JSONResponse(taskTypeOut(t)), nil
}

// PutTaskType creates a task type or makes a new version of it.
func (s *Server) PutTaskType(ctx context.Context, r PutTaskTypeRequestObject) (PutTaskTypeResponseObject, error) {
	t := taskTypeIn(r.Type, *r.Body).WithDefaults()
	if err := t.Validate(); err != nil {
		return nil, err
	}
	stored, created, err := s.cfg.Store.PutTaskType(ctx, principalOf(ctx).Tenant, t)
	switch {
	case err != nil:
		return nil, err
	case created:
		return PutTaskType201JSONResponse(taskTypeOut(stored)), nil
	default:
		return PutTaskType200JSONResponse(taskTypeOut(stored)), nil
	}
}

// DeleteTaskType drops a task type with its tables.
func (s *Server) DeleteTaskType(ctx context.Context, r DeleteTaskTypeRequestObject) (DeleteTaskTypeResponseObject, error) {
	if err := s.cfg.Store.DeleteTaskType(ctx, principalOf(ctx).Tenant, r.Type); err != nil {
		return nil, err
	}
	return DeleteTaskType204Response{}, nil
}

func taskTypeIn(name string, spec TaskTypeSpec) asyncflow.TaskType {
	return asyncflow.TaskType{Name: name, Stages: spec.Stages, Retry: spec.Retry, ScheduleLimit: spec.ScheduleLimit, ScheduleInterval: spec.ScheduleInterval}
}

func taskTypeOut(t store.StoredType) TaskType {
	return TaskType{Name: t.Name, Version: t.Version, Stages: t.Stages, Retry: t.Retry, ScheduleLimit: t.ScheduleLimit, ScheduleInterval: t.ScheduleInterval,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt}
}
