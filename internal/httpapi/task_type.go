package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/store"
)

// ListTaskTypes lists a page of the tenant's task types.
func (s *Server) ListTaskTypes(
	ctx context.Context, r ListTaskTypesRequestObject,
) (ListTaskTypesResponseObject, error) {
	list := cursor.Of("types", r.Params)
	after, err := list.ReadName(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	types, more, err := s.cfg.Store.TypePage(ctx, principalOf(ctx).Tenant, after,
		pageLimit(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	out := ListTaskTypes200JSONResponse{Data: make([]api.TaskType, len(types))}
	for i, t := range types {
		out.Data[i], out.NextCursor = s.taskTypeOut(t), list.Write(more, t.Name)
	}
	return out, nil
}

// GetTaskType returns one task type.
func (s *Server) GetTaskType(
	ctx context.Context, r GetTaskTypeRequestObject,
) (GetTaskTypeResponseObject, error) {
	t, err := s.cfg.Store.TaskType(ctx, principalOf(ctx).Tenant, r.Type)
	if err != nil {
		return nil, err
	}
	setETag(ctx, t.ETag())
	return GetTaskType200JSONResponse(s.taskTypeOut(t)), nil
}

// PutTaskType creates a task type or makes a new version of it.
func (s *Server) PutTaskType(
	ctx context.Context, r PutTaskTypeRequestObject,
) (PutTaskTypeResponseObject, error) {
	t := taskTypeIn(r.Type, *r.Body).WithDefaults()
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if err := s.findTarget(ctx, t.OnFinal, r.Params.DryRun); err != nil {
		return nil, err
	}
	put := s.cfg.Store.PutTaskType
	if r.Params.DryRun {
		put = s.cfg.Store.CheckTaskType
		store.AuditedCallOf(ctx).Note("dry_run", true)
	}
	stored, created, err := put(withPrecondition(ctx), principalOf(ctx).Tenant, t)
	if err == nil && !r.Params.DryRun {
		setETag(ctx, stored.ETag())
	}
	switch {
	case err != nil:
		return nil, err
	case created:
		return PutTaskType201JSONResponse(s.taskTypeOut(stored)), nil
	default:
		return PutTaskType200JSONResponse(s.taskTypeOut(stored)), nil
	}
}

// DeleteTaskType deletes a task type and drops its tables.
func (s *Server) DeleteTaskType(
	ctx context.Context, r DeleteTaskTypeRequestObject,
) (DeleteTaskTypeResponseObject, error) {
	err := s.cfg.Store.DeleteTaskType(withPrecondition(ctx), principalOf(ctx).Tenant, r.Type,
		r.Params.Cascade)
	return DeleteTaskType204Response{}, err
}

func taskTypeIn(name string, spec api.TaskTypeSpec) asyncflow.TaskType {
	return asyncflow.TaskType{
		Name:             name,
		Stages:           spec.Stages,
		Retry:            spec.Retry,
		ScheduleLimit:    spec.ScheduleLimit,
		ScheduleInterval: spec.ScheduleInterval,
		Limits:           asyncflow.Limits{MaxInFlight: spec.MaxInFlight, Rate: spec.Rate},
		MaxDeliverBytes:  spec.MaxDeliverBytes,
		Flow:             spec.Flow,
		RollRows:         spec.RollRows,
		RollAge:          spec.RollAge,
		Retention:        spec.Retention.Tasks,
		ContextRetention: spec.Retention.Context,
		MaxSteps:         spec.MaxSteps,
		StageMapping:     spec.StageMapping,
		OnFinal:          onFinalIn(spec.OnFinal),
		StartBy:          spec.StartBy,
		EndBy:            spec.EndBy,
		Searchable:       spec.Searchable,
	}
}

// specOut is taskTypeIn's way back.
func specOut(t asyncflow.TaskType) api.TaskTypeSpec {
	return api.TaskTypeSpec{
		Stages:           t.Stages,
		Retry:            t.Retry,
		ScheduleLimit:    t.ScheduleLimit,
		ScheduleInterval: t.ScheduleInterval,
		MaxInFlight:      t.MaxInFlight,
		Rate:             t.Rate,
		MaxDeliverBytes:  t.MaxDeliverBytes,
		Flow:             t.Flow,
		RollRows:         t.RollRows,
		RollAge:          t.RollAge,
		Retention:        t.Kept(),
		MaxSteps:         t.MaxSteps,
		StageMapping:     t.StageMapping,
		OnFinal:          onFinalOut(t.OnFinal),
		StartBy:          t.StartBy,
		EndBy:            t.EndBy,
		Searchable:       t.Searchable,
	}
}

// ListTaskTypeVersions lists the versions of a task type that are kept.
func (s *Server) ListTaskTypeVersions(
	ctx context.Context, r ListTaskTypeVersionsRequestObject,
) (ListTaskTypeVersionsResponseObject, error) {
	all, err := s.cfg.Store.TypeVersions(ctx, principalOf(ctx).Tenant, r.Type)
	if err != nil {
		return nil, err
	}
	out := ListTaskTypeVersions200JSONResponse{Data: make([]api.AppliedVersion, len(all))}
	for i, v := range all {
		out.Data[i] = api.AppliedVersion{Version: v.Version, AppliedAt: v.AppliedAt,
			Current: v.Current}
	}
	return out, nil
}

// GetTaskTypeVersion returns a version of a task type.
func (s *Server) GetTaskTypeVersion(
	ctx context.Context, r GetTaskTypeVersionRequestObject,
) (GetTaskTypeVersionResponseObject, error) {
	v, err := s.cfg.Store.TypeVersion(ctx, principalOf(ctx).Tenant, r.Type, r.Version)
	if err != nil {
		return nil, err
	}
	return GetTaskTypeVersion200JSONResponse{Name: r.Type, Version: v.Version,
		AppliedAt: v.AppliedAt, Current: v.Current, Spec: specOut(v.Type)}, nil
}

// PauseTaskType pauses a task type: its tasks are not leased.
func (s *Server) PauseTaskType(
	ctx context.Context, r PauseTaskTypeRequestObject,
) (PauseTaskTypeResponseObject, error) {
	reason := ""
	if r.Body != nil {
		reason = callbacks.Clean(r.Body.Reason, callbacks.MaxErrorBytes)
	}
	tenant := principalOf(ctx).Tenant
	t, err := s.cfg.Store.Pause(ctx, tenant, r.Type, reason)
	if err != nil {
		return nil, err
	}
	s.cfg.Committer.Quiesce(ctx, store.TypeKey{Tenant: tenant, Type: r.Type})
	s.log.Info("task type paused", "tenant", tenant, "type", t.Name,
		"by", principalOf(ctx).Subject, "reason", t.PauseReason)
	setETag(ctx, t.ETag())
	return PauseTaskType200JSONResponse(s.taskTypeOut(t)), nil
}

// ResumeTaskType resumes a paused task type.
func (s *Server) ResumeTaskType(
	ctx context.Context, r ResumeTaskTypeRequestObject,
) (ResumeTaskTypeResponseObject, error) {
	var ramp asyncflow.Duration
	if r.Body != nil {
		ramp = r.Body.Ramp
	}
	if ramp.Std() < 0 || ramp.Std() > asyncflow.MaxRamp {
		return nil, asyncflow.InvalidField("ramp", "is %s; it must be 0s to %s",
			ramp, asyncflow.MaxRamp)
	}
	t, err := s.cfg.Store.Resume(ctx, principalOf(ctx).Tenant, r.Type, ramp.Std())
	if err != nil {
		return nil, err
	}
	s.log.Info("task type resumed", "tenant", principalOf(ctx).Tenant, "type", t.Name,
		"by", principalOf(ctx).Subject, "ramp", t.Ramp)
	setETag(ctx, t.ETag())
	return ResumeTaskType200JSONResponse(s.taskTypeOut(t)), nil
}

// ReleaseFlowKey lets the tasks of a flow key continue after one of them failed.
func (s *Server) ReleaseFlowKey(
	ctx context.Context, r ReleaseFlowKeyRequestObject,
) (ReleaseFlowKeyResponseObject, error) {
	store.AuditedCallOf(ctx).Note("flow_key", r.Body.FlowKey)
	n, err := s.cfg.Store.UnblockKey(ctx, principalOf(ctx).Tenant, r.Type, r.Body.FlowKey)
	return ReleaseFlowKey200JSONResponse{Released: n}, err
}

func (s *Server) taskTypeOut(t store.StoredType) api.TaskType {
	return api.TaskType{
		Name:             t.Name,
		Version:          t.Version,
		Stages:           t.Stages,
		Retry:            t.Retry,
		ScheduleLimit:    t.ScheduleLimit,
		ScheduleInterval: t.ScheduleInterval,
		MaxInFlight:      t.MaxInFlight,
		Rate:             t.Rate,
		MaxDeliverBytes:  t.MaxDeliverBytes,
		Flow:             t.Flow,
		RollRows:         t.RollRows,
		RollAge:          t.RollAge,
		Retention:        t.Kept(),
		MaxSteps:         t.MaxSteps,
		StageMapping:     t.StageMapping,
		OnFinal:          onFinalOut(t.OnFinal),
		StartBy:          t.StartBy,
		EndBy:            t.EndBy,
		Searchable:       t.Searchable,
		SearchableFrom:   t.SearchableFrom,
		Notifies:         t.Notifies,
		PausedAt:         t.PausedAt,
		PauseReason:      t.PauseReason,
		RampUntil:        t.RampUntil(s.cfg.Store.Clock.Now()),
		CreatedAt:        t.CreatedAt,
		UpdatedAt:        t.UpdatedAt,
	}
}

// ListTaskTypeRolls returns the rolls that may keep tasks of a type, newest first.
func (s *Server) ListTaskTypeRolls(
	ctx context.Context, r ListTaskTypeRollsRequestObject,
) (ListTaskTypeRollsResponseObject, error) {
	rolls, older, err := s.cfg.Store.TypeRolls(ctx, principalOf(ctx).Tenant, r.Type)
	if err != nil {
		return nil, err
	}
	out := ListTaskTypeRolls200JSONResponse{Data: make([]api.Roll, len(rolls)), Older: older}
	for i, roll := range rolls {
		out.Data[i] = api.Roll{
			Position:      roll.Position,
			Own:           roll.Own,
			OpenedAt:      roll.OpenedAt,
			SealedAt:      roll.SealedAt,
			DrainedAt:     roll.DrainedAt,
			IdleSince:     roll.IdleSince,
			DropsAt:       roll.DropsAt,
			CompactsAt:    roll.CompactsAt,
			Bytes:         roll.Bytes,
			TasksEstimate: roll.Tasks,
			Retention:     asyncflow.NewDuration(roll.Retention),
			NextTasks:     roll.NextTasks,
			NextAt:        roll.NextAt,
		}
	}
	return out, nil
}
