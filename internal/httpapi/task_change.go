package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// CancelTask ends a task that is not final.
func (s *Server) CancelTask(
	ctx context.Context, r CancelTaskRequestObject,
) (CancelTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	tenant, reason := principalOf(ctx).Tenant, cancelReason(ctx, "")
	if r.Body != nil {
		reason = cancelReason(ctx, r.Body.Reason)
	}
	task, err := s.cfg.Store.Cancel(ctx, tenant, id, reason)
	return CancelTask200JSONResponse(s.changedTask(tenant, task)), err
}

// cancelReason returns the reason of a cancel: the caller's, or else who the caller is.
func cancelReason(ctx context.Context, given string) string {
	if given != "" {
		return callbacks.Clean(given, callbacks.MaxErrorBytes)
	}
	return "cancelled by " + cmp.Or(principalOf(ctx).Subject, "a caller")
}

// PatchTask changes when a pending or waiting task runs, or what its stage gets.
func (s *Server) PatchTask(
	ctx context.Context, r PatchTaskRequestObject,
) (PatchTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	p, err := patchIn(*r.Body, s.cfg.Store.Clock.Now())
	if err != nil {
		return nil, err
	}
	if err = s.checkLifetime(p.StartBy, p.EndBy); err != nil {
		return nil, err
	}
	if err = s.checkPriority(ctx, id.Type, p.Priority); err != nil {
		return nil, err
	}
	if err = s.checkClaimRules(ctx, id.Type, p.Claim); err != nil {
		return nil, err
	}
	if p.Context = r.Body.Context; p.Context != nil {
		if err := s.checkNewContext(ctx, p.Context); err != nil {
			return nil, err
		}
	}
	p.By = asyncflow.AuditText(principalOf(ctx).Subject, asyncflow.MaxAuditText)
	notePatch(ctx, p)
	tenant := principalOf(ctx).Tenant
	task, err := s.cfg.Store.Change(withPrecondition(ctx), tenant, id, p)
	if err != nil {
		return nil, err
	}
	setETag(ctx, task.ETag())
	return PatchTask200JSONResponse(s.changedTask(tenant, task)), nil
}

// notePatch writes into the audit what is to be changed.
func notePatch(ctx context.Context, p asyncflow.Patch) {
	if len(p.Priority) > 0 {
		store.AuditedCallOf(ctx).Note("priority", p.Priority)
	}
	if !p.RunAt.IsZero() {
		store.AuditedCallOf(ctx).Note("run_at", p.RunAt)
	}
	if p.Context != nil {
		store.AuditedCallOf(ctx).Note("context", "edited")
	}
	if p.Retry != nil {
		store.AuditedCallOf(ctx).Note("retry", p.Retry)
	}
	noteClaimRules(ctx, p.Claim)
	noteLifetime(ctx, p.StartBy, p.EndBy)
}

// noteClaimRules writes into the audit which rules a task is to get; nil: the same as before.
func noteClaimRules(ctx context.Context, r *asyncflow.ClaimRules) {
	if r != nil {
		store.AuditedCallOf(ctx).Note("claim", r)
	}
}

// noteLifetime writes into the audit which lifetime a task is to get, as it was given.
func noteLifetime(ctx context.Context, start, end asyncflow.Deadline) {
	if !start.IsZero() {
		store.AuditedCallOf(ctx).Note("start_by", start.Text())
	}
	if !end.IsZero() {
		store.AuditedCallOf(ctx).Note("end_by", end.Text())
	}
}

func patchIn(in api.TaskPatch, now time.Time) (asyncflow.Patch, error) {
	p := asyncflow.Patch{Priority: in.Priority, Retry: in.Retry, StartBy: in.StartBy,
		EndBy: in.EndBy, Claim: in.Claim}
	var err error
	if p.RunAt, err = runAtIn(in.RunAt, in.Delay, now); err != nil {
		return p, err
	}
	return p, p.Validate(now)
}

// runAtIn returns the time that a body sets by run_at or by delay; zero: it sets none.
func runAtIn(runAt time.Time, delay *asyncflow.Duration, now time.Time) (time.Time, error) {
	switch {
	case delay == nil:
		return runAt, nil
	case !runAt.IsZero():
		return runAt, asyncflow.InvalidField("delay", "and run_at exclude each other")
	case delay.Std() < 0 || delay.Std() > asyncflow.MaxDelay:
		return runAt, asyncflow.InvalidField("delay", "is %s; it must be 0s to %s (a year)",
			delay, asyncflow.MaxDelay)
	}
	return now.Add(delay.Std()), nil
}

// checkNewContext checks a context that a task gets after its submit.
func (s *Server) checkNewContext(ctx context.Context, doc json.RawMessage) error {
	if err := asyncflow.CheckDocument("context", doc, s.cfg.MaxContext); err != nil {
		return err
	}
	return checkContext(doc, s.contextQuota(ctx))
}

// RedriveTask runs a failed or cancelled task again.
func (s *Server) RedriveTask(
	ctx context.Context, r RedriveTaskRequestObject,
) (RedriveTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	redrive := store.Redrive{}
	if r.Body != nil {
		redrive = store.Redrive{Stage: r.Body.Stage, Context: r.Body.Context,
			AllChildren: r.Body.AllChildren, Fresh: r.Body.Fresh,
			Dependents: r.Body.Dependents, DryRun: r.Body.DryRun,
			StartBy: r.Body.StartBy, EndBy: r.Body.EndBy}
		if err := asyncflow.CheckDeadlines(r.Body.StartBy, r.Body.EndBy); err != nil {
			return nil, err
		}
		if err := s.checkLifetime(r.Body.StartBy, r.Body.EndBy); err != nil {
			return nil, err
		}
	}
	if redrive.Context != nil {
		if err := s.checkNewContext(ctx, redrive.Context); err != nil {
			return nil, err
		}
	}
	if redrive.Stage != "" {
		store.AuditedCallOf(ctx).Note("stage", redrive.Stage)
	}
	if redrive.Context != nil {
		store.AuditedCallOf(ctx).Note("context", "edited")
	}
	noteLifetime(ctx, redrive.StartBy, redrive.EndBy)
	tenant := principalOf(ctx).Tenant
	task, err := s.cfg.Store.Redrive(ctx, tenant, id, redrive)
	return RedriveTask200JSONResponse(s.changedTask(tenant, task)), err
}

// changedContext is the longest context, result and list of a task in the answer to a change, in
// bytes.
const changedContext = 8 << 10

// dependencyBytes is the most bytes of a dependency in an answer, without its key.
const dependencyBytes = 300

// changedTask is taskOut for the answer to a change, with its bounded length (see reserveAnswer):
// it leaves out what is long.
func (s *Server) changedTask(tenant string, t store.Task) api.Task {
	if len(t.Context) > changedContext {
		t.Context = nil
	}
	if len(t.Result) > changedContext {
		t.Result = nil
	}
	size := 0
	for _, d := range t.Dependencies {
		size += dependencyBytes + 6*len(d.Key) // a control character takes six bytes
	}
	if size > 4*changedContext {
		t.Dependencies = nil
	}
	out := s.taskOut(tenant, t)
	if len(out.WaitsBecause) > changedContext {
		out.WaitsBecause = ""
	}
	return out
}

// PauseTask keeps children of a task from beginning.
func (s *Server) PauseTask(
	ctx context.Context, r PauseTaskRequestObject,
) (PauseTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	reason := ""
	if r.Body != nil {
		reason = callbacks.Clean(r.Body.Reason, callbacks.MaxErrorBytes)
	}
	tenant := principalOf(ctx).Tenant
	task, err := s.cfg.Store.PauseTree(ctx, tenant, id, reason)
	return PauseTask200JSONResponse(s.changedTask(tenant, task)), err
}

// ResumeTask lets the children of a paused task begin again.
func (s *Server) ResumeTask(
	ctx context.Context, r ResumeTaskRequestObject,
) (ResumeTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	task, err := s.cfg.Store.ResumeTree(ctx, tenant, id)
	return ResumeTask200JSONResponse(s.changedTask(tenant, task)), err
}
