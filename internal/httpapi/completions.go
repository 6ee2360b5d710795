package httpapi

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/store"
)

// CompleteTask takes a worker's report that the stage is done.
func (s *Server) CompleteTask(ctx context.Context, r CompleteTaskRequestObject) (CompleteTaskResponseObject, error) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	if r.Body != nil && len(r.Body.Output) > 0 && string(r.Body.Output) != "null" {
		if err := asyncflow.CheckJSON(r.Body.Output); err != nil {
			return nil, asyncflow.InvalidField("output", "%v", err)
		}
		if n := len(r.Body.Output); n > s.cfg.MaxContext {
			return nil, &asyncflow.Error{Code: asyncflow.CodeTooLarge, Fields: []asyncflow.FieldError{
				{Field: "output", Message: fmt.Sprintf("is %d bytes; the limit is %d", n, s.cfg.MaxContext)}}}
		}
		o.Output = r.Body.Output
	}
	status, err := s.report(ctx, r.Id, o)
	if err != nil {
		return nil, err
	}
	return CompleteTask200JSONResponse{Status: status}, nil
}

// FailTask takes a worker's report that the attempt failed.
func (s *Server) FailTask(ctx context.Context, r FailTaskRequestObject) (FailTaskResponseObject, error) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: callbacks.Clean(r.Body.Error, callbacks.MaxErrorBytes), RetryAfter: r.Body.RetryAfter.Std()}
	if r.Body.Retryable != nil && !*r.Body.Retryable {
		o.Kind = asyncflow.OutcomeRejected
	}
	status, err := s.report(ctx, r.Id, o)
	if err != nil {
		return nil, err
	}
	return FailTask200JSONResponse{Status: status}, nil
}

// report settles the attempt that the completion token vouches for and returns
// where the task stands then. The same report again changes nothing and is well;
// any other report for an attempt that is over is CodeConflict.
func (s *Server) report(ctx context.Context, rawID string, o asyncflow.Outcome) (asyncflow.Status, error) {
	id, err := asyncflow.ParseTaskID(rawID)
	if err != nil {
		return "", err
	}
	now := s.cfg.Store.Clock.Now()
	c, err := s.cfg.Keys.VerifyCompletion(bearerOf(ctx), id, now)
	if err != nil {
		return "", err
	}
	t, err := s.cfg.Store.Catalog.Fresh(ctx, c.Tenant, id.Type)
	if err != nil {
		return "", err
	}
	l, stands, err := s.cfg.Store.LeaseOf(ctx, t, id, c.Seq)
	if err != nil {
		return "", err
	}
	if !stands {
		written, err := s.cfg.Store.Written(ctx, t, id, c.Seq)
		if err != nil {
			return "", err
		}
		return s.reportedBefore(ctx, c, o, written)
	}
	o.Duration = now.Sub(l.LeasedAt)
	return s.settle(ctx, t, c, asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(t.TaskType, l, o, now)})
}

// settle waits until the settlement is durable.
func (s *Server) settle(ctx context.Context, t *store.Type, c callbacks.Completion, settlement asyncflow.Settlement) (asyncflow.Status, error) {
	done := make(chan store.Settled, 1)
	s.cfg.Store.Settle(c.Tenant, settlement, func(r store.Settled) { done <- r })
	r := <-done
	switch {
	case r.Err != nil:
		return "", r.Err
	case r.Stale:
		return s.reportedBefore(ctx, c, settlement.Outcome, r.Written)
	}
	asyncflow.LogAttempt(s.log, c.Tenant, settlement)
	return settlement.Verdict.Status(s.cfg.Store.Clock.Now()), nil
}

// reportedBefore answers a report for an attempt that is over.
func (s *Server) reportedBefore(ctx context.Context, c callbacks.Completion, o asyncflow.Outcome, written asyncflow.OutcomeKind) (asyncflow.Status, error) {
	task, err := s.cfg.Store.Task(ctx, c.Tenant, c.Task)
	switch {
	case err != nil:
		return "", err
	case written == o.Kind:
		return task.Status, nil
	case written == asyncflow.OutcomeLost:
		return "", asyncflow.Errorf(asyncflow.CodeConflict, "this attempt is over: its lease ran out; the task is %s", task.Status)
	case written == "":
		return "", asyncflow.Errorf(asyncflow.CodeConflict, "this attempt does not hold the task's lease; the task is %s", task.Status)
	}
	return "", asyncflow.Errorf(asyncflow.CodeConflict, "this attempt is over: it ended as %q; the task is %s", written, task.Status)
}
