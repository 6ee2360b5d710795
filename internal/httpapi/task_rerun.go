package httpapi

import (
	"context"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// RerunTask runs a final task again, as a new task.
func (s *Server) RerunTask(
	ctx context.Context, r RerunTaskRequestObject,
) (RerunTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	changes, err := s.rerunIn(ctx, r.Body)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	call := store.AuditedCallOf(ctx)
	task, err := s.cfg.Store.Rerun(ctx, tenant, id)
	if err != nil {
		made, known := s.rerunMade(ctx, id, r.Params.IdempotencyKey, changes)
		if !known {
			return nil, err
		}
		call.Note("task", made.ID.String())
		return RerunTask200JSONResponse(submittedOut(made)), nil
	}
	task.Options.Key = r.Params.IdempotencyKey
	task.RunAt = changes.RunAt
	task.Options.Claim = task.Options.Claim.Changed(changes.Options.Claim)
	noteClaimRules(ctx, changes.Options.Claim)
	task.StartBy = changes.StartBy
	task.EndBy = changes.EndBy
	noteLifetime(ctx, task.StartBy, task.EndBy)
	edited, err := changes.edit(task.Context)
	if err != nil {
		return nil, err
	}
	if edited != nil {
		task.Context = edited
		call.Note("context", "edited")
	}
	if err := s.checkRerun(ctx, &task); err != nil {
		return nil, err
	}
	if err := s.limitSubmits(ctx, task); err != nil {
		return nil, err
	}
	result := s.submitOne(ctx, tenant, task)
	if result.Err != nil {
		return nil, result.Err
	}
	call.Note("task", result.ID.String())
	if !result.Existing {
		return RerunTask201JSONResponse(submittedOut(result)), nil
	}
	if err := s.checkSameRerun(ctx, tenant, task, result.ID); err != nil {
		return nil, err
	}
	return RerunTask200JSONResponse(submittedOut(result)), nil
}

// rerunMade returns the task that the same call made before. The task that it runs again may have
// changed since: it may be live again, or gone.
func (s *Server) rerunMade(
	ctx context.Context, of asyncflow.TaskID, key string, changes rerunChanges,
) (made store.Submitted, known bool) {
	if key == "" {
		return made, false
	}
	t, err := s.cfg.Store.RerunByKey(ctx, principalOf(ctx).Tenant, of, key)
	if err != nil {
		return made, false
	}
	edited, err := changes.edit(t.Context) // a context that was patched so is the same once more
	if err != nil || edited != nil && !asyncflow.SameJSON(t.Context, edited) {
		return made, false
	}
	return store.Submitted{ID: t.ID, Existing: true, Stage: t.Stage, Status: t.Status,
		OrderTime: t.OrderTime, CreatedAt: t.CreatedAt}, true
}

// rerunChanges is what a caller wants otherwise than in the task that runs again.
type rerunChanges struct {
	asyncflow.NewTask
	patch json.RawMessage // of the context
}

// edit returns the context in place of that of the task; nil: that one stays.
func (c rerunChanges) edit(context json.RawMessage) (json.RawMessage, error) {
	if c.patch == nil {
		return c.Context, nil
	}
	return asyncflow.PatchContext(context, c.patch)
}

// rerunIn returns what a caller wants otherwise than in the task that runs again.
func (s *Server) rerunIn(ctx context.Context, in *api.Rerun) (task rerunChanges, err error) {
	if in == nil {
		return task, nil
	}
	if task.Context = in.Context; task.Context != nil {
		if err := s.checkNewContext(ctx, task.Context); err != nil {
			return task, err
		}
	}
	if task.patch = in.ContextPatch; task.patch != nil {
		if task.Context != nil {
			return task, asyncflow.InvalidField("context_patch", "and context exclude each other")
		}
		if err := asyncflow.CheckContextPatch(task.patch); err != nil {
			return task, err
		}
	}
	task.Options.Claim = in.Claim
	if err = asyncflow.CheckClaimChange(in.Claim); err != nil {
		return task, err
	}
	task.StartBy = in.StartBy
	task.EndBy = in.EndBy
	now := s.cfg.Store.Clock.Now()
	if task.RunAt, err = runAtIn(in.RunAt, in.Delay, now); err != nil {
		return task, err
	}
	return task, asyncflow.Patch{RunAt: task.RunAt}.Validate(now)
}

// checkRerun checks a new task as a submit does. Where its end is told was allowed to the task that
// it runs again.
func (s *Server) checkRerun(ctx context.Context, task *asyncflow.NewTask) error {
	told := task.Options.OnFinal
	task.Options.OnFinal = nil
	err := s.checkTask(ctx, task, s.cfg.Store.Clock.Now(), s.contextQuota(ctx))
	task.Options.OnFinal = told
	if err != nil {
		return err
	}
	return s.findTarget(ctx, told, false)
}

// checkSameRerun refuses a key that stands for a task which runs no task, or another one, again.
func (s *Server) checkSameRerun(
	ctx context.Context, tenant string, task asyncflow.NewTask, existing asyncflow.TaskID,
) error {
	found, err := s.cfg.Store.Task(ctx, tenant, existing)
	if err == nil && found.Options.RerunOf != task.Options.RerunOf {
		err = asyncflow.Errorf(asyncflow.CodeKeyReused,
			"the Idempotency-Key stands for task %s, which doesn't run %s again", existing,
			task.Options.RerunOf)
	}
	return err
}
