package httpapi

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/store"
)

// nextRuns is how many of its next runs a schedule shows.
const nextRuns = 5

// ListSchedules lists a page of the tenant's schedules.
func (s *Server) ListSchedules(
	ctx context.Context, r ListSchedulesRequestObject,
) (ListSchedulesResponseObject, error) {
	list := cursor.Of("schedules", r.Params)
	after, err := list.ReadName(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	page, more, err := s.cfg.Store.SchedulePage(ctx, principalOf(ctx).Tenant, after,
		pageLimit(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	out := ListSchedules200JSONResponse{Data: make([]api.Schedule, len(page))}
	for i, stored := range page {
		if out.Data[i], err = s.scheduleOut(stored); err != nil {
			return nil, err
		}
		out.NextCursor = list.Write(more, stored.Name)
	}
	return out, nil
}

// GetSchedule returns one schedule.
func (s *Server) GetSchedule(
	ctx context.Context, r GetScheduleRequestObject,
) (GetScheduleResponseObject, error) {
	stored, err := s.cfg.Store.Schedule(ctx, principalOf(ctx).Tenant, r.Name)
	if err != nil {
		return nil, err
	}
	out, err := s.scheduleAnswer(ctx, stored)
	return GetSchedule200JSONResponse(out), err
}

// PutSchedule creates a schedule or makes a new version of it.
func (s *Server) PutSchedule(
	ctx context.Context, r PutScheduleRequestObject,
) (PutScheduleResponseObject, error) {
	schedule := scheduleIn(r.Name, *r.Body).WithDefaults()
	if err := schedule.Validate(s.cfg.MaxContext); err != nil {
		return nil, err
	}
	if err := checkContext(schedule.Context, s.contextQuota(ctx)); err != nil {
		return nil, err
	}
	if err := s.checkPriority(ctx, schedule.Type, schedule.Priority); err != nil {
		return nil, err
	}
	if err := s.checkClaimRules(ctx, schedule.Type, schedule.Claim); err != nil {
		return nil, err
	}
	if err := s.findTarget(ctx, schedule.OnFinal, r.Params.DryRun); err != nil {
		return nil, err
	}
	put := s.cfg.Store.PutSchedule
	if r.Params.DryRun {
		put = s.cfg.Store.CheckSchedule
		store.AuditedCallOf(ctx).Note("dry_run", true)
	}
	stored, created, err := put(withPrecondition(ctx), principalOf(ctx).Tenant, schedule)
	if err != nil {
		return nil, err
	}
	if !r.Params.DryRun {
		setETag(ctx, stored.ETag())
	}
	out, err := s.scheduleOut(stored)
	if created {
		return PutSchedule201JSONResponse(out), err
	}
	return PutSchedule200JSONResponse(out), err
}

// DeleteSchedule deletes a schedule.
func (s *Server) DeleteSchedule(
	ctx context.Context, r DeleteScheduleRequestObject,
) (DeleteScheduleResponseObject, error) {
	err := s.cfg.Store.DeleteSchedule(withPrecondition(ctx), principalOf(ctx).Tenant, r.Name)
	return DeleteSchedule204Response{}, err
}

// PauseSchedule pauses a schedule: its runs are skipped.
func (s *Server) PauseSchedule(
	ctx context.Context, r PauseScheduleRequestObject,
) (PauseScheduleResponseObject, error) {
	stored, err := s.cfg.Store.PauseSchedule(ctx, principalOf(ctx).Tenant, r.Name)
	if err != nil {
		return nil, err
	}
	s.log.Info("schedule paused", "tenant", principalOf(ctx).Tenant, "schedule", r.Name,
		"by", principalOf(ctx).Subject)
	out, err := s.scheduleAnswer(ctx, stored)
	return PauseSchedule200JSONResponse(out), err
}

// ResumeSchedule resumes a paused schedule.
func (s *Server) ResumeSchedule(
	ctx context.Context, r ResumeScheduleRequestObject,
) (ResumeScheduleResponseObject, error) {
	stored, err := s.cfg.Store.ResumeSchedule(ctx, principalOf(ctx).Tenant, r.Name)
	if err != nil {
		return nil, err
	}
	s.log.Info("schedule resumed", "tenant", principalOf(ctx).Tenant, "schedule", r.Name,
		"by", principalOf(ctx).Subject)
	out, err := s.scheduleAnswer(ctx, stored)
	return ResumeSchedule200JSONResponse(out), err
}

// TriggerSchedule submits the task of a schedule now.
func (s *Server) TriggerSchedule(
	ctx context.Context, r TriggerScheduleRequestObject,
) (TriggerScheduleResponseObject, error) {
	tenant := principalOf(ctx).Tenant
	schedule, err := s.cfg.Store.Schedule(ctx, tenant, r.Name)
	if err != nil {
		return nil, err
	}
	tasks := []asyncflow.NewTask{schedule.Task()}
	if err := s.limitSubmits(ctx, tasks...); err != nil {
		return nil, err
	}
	traceOf(ctx).Submits(tasks)
	all := s.cfg.Committer.Submit(ctx, tenant, tasks)
	s.giveBackChildren(ctx, tasks, all)
	submitted := all[0]
	if submitted.Err != nil {
		return nil, submitted.Err
	}
	store.AuditedCallOf(ctx).Note("task", submitted.ID.String())
	return TriggerSchedule201JSONResponse(submittedOut(submitted)), nil
}

func scheduleIn(name string, spec api.ScheduleSpec) asyncflow.Schedule {
	schedule := asyncflow.Schedule{
		Name:        name,
		Type:        spec.Type,
		Context:     spec.Context,
		Priority:    spec.Priority,
		DependsOn:   spec.DependsOn,
		ContextFrom: spec.ContextFrom,
		Labels: asyncflow.Labels{User: spec.User, Tags: spec.Tags, Metadata: spec.Metadata,
			Trace: spec.Trace},
		OnFinal:      onFinalIn(spec.OnFinal),
		StartBy:      spec.StartBy,
		EndBy:        spec.EndBy,
		Claim:        spec.Claim,
		Cron:         spec.Cron,
		TimeZone:     spec.TimeZone,
		Every:        spec.Every,
		Overlap:      spec.Overlap,
		CatchUp:      spec.CatchUp,
		CatchUpLimit: spec.CatchUpLimit,
		StartsAt:     spec.StartsAt,
		EndsAt:       spec.EndsAt,
	}
	if !spec.Retry.IsZero() {
		schedule.Retry = &spec.Retry
	}
	return schedule
}

// scheduleAnswer returns the document of a schedule, and sets its ETag. An error of the call that
// returned the schedule is passed on.
func (s *Server) scheduleAnswer(
	ctx context.Context, stored store.StoredSchedule,
) (api.Schedule, error) {
	setETag(ctx, stored.ETag())
	return s.scheduleOut(stored)
}

func (s *Server) scheduleOut(stored store.StoredSchedule) (api.Schedule, error) {
	runs, err := stored.NextRuns(s.cfg.Store.Clock.Now(), nextRuns)
	if err != nil {
		return api.Schedule{}, err
	}
	out := api.Schedule{
		Name:          stored.Name,
		Version:       stored.Version,
		Type:          stored.Type,
		Context:       stored.Context,
		Priority:      stored.Priority,
		DependsOn:     stored.DependsOn,
		ContextFrom:   stored.ContextFrom,
		OnFinal:       onFinalOut(stored.OnFinal),
		StartBy:       stored.StartBy,
		EndBy:         stored.EndBy,
		Claim:         stored.Claim,
		User:          stored.User,
		Tags:          stored.Tags,
		Metadata:      stored.Metadata,
		Trace:         stored.Trace,
		Cron:          stored.Cron,
		TimeZone:      stored.TimeZone,
		Every:         stored.Every,
		Overlap:       stored.Overlap,
		CatchUp:       stored.CatchUp,
		CatchUpLimit:  stored.CatchUpLimit,
		StartsAt:      stored.StartsAt,
		EndsAt:        stored.EndsAt,
		NextRuns:      append([]time.Time{}, runs...),
		PausedAt:      stored.PausedAt,
		LastRunAt:     stored.LastAt,
		Skipped:       stored.Skipped,
		LastSkippedAt: stored.SkippedAt,
		LastError:     stored.LastError,
		FailingSince:  stored.FailedAt,
		CreatedAt:     stored.CreatedAt,
		UpdatedAt:     stored.UpdatedAt,
	}
	if stored.Retry != nil {
		out.Retry = *stored.Retry
	}
	if stored.LastID.Number != 0 {
		out.LastTaskID = stored.LastID.String()
	}
	return out, nil
}
