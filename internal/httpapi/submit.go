package httpapi

import (
	"context"
	"fmt"
	"slices"

	"github.com/asyncflow/asyncflow"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// SubmitTask accepts one task.
func (s *Server) SubmitTask(ctx context.Context, r SubmitTaskRequestObject) (SubmitTaskResponseObject, error) {
	task := taskIn(*r.Body)
	switch header := r.Params.IdempotencyKey; {
	case len(header) > asyncflow.MaxKeyLength:
		return nil, asyncflow.InvalidField("Idempotency-Key", "is %d bytes long; the limit is %d", len(header), asyncflow.MaxKeyLength)
	case header != "" && task.Options.Key != "" && header != task.Options.Key:
		return nil, asyncflow.InvalidField("Idempotency-Key", "is another than key in the body")
	case header != "":
		task.Options.Key = header
	}
	if err := task.Validate(s.cfg.Store.Clock.Now(), s.cfg.MaxContext); err != nil {
		return nil, err
	}
	if err := checkContext(task.Context, s.contextQuota(ctx)); err != nil {
		return nil, err
	}
	if err := s.throttle(ctx, 1); err != nil {
		return nil, err
	}
	result := s.cfg.Store.Submit(ctx, principalOf(ctx).Tenant, []asyncflow.NewTask{task})[0]
	if result.Err != nil {
		return nil, result.Err
	}
	if result.Existing {
		return SubmitTask200JSONResponse(submittedOut(result)), nil
	}
	return SubmitTask201JSONResponse(submittedOut(result)), nil
}

// SubmitTasks accepts a batch: each task has a result of its own.
func (s *Server) SubmitTasks(ctx context.Context, r SubmitTasksRequestObject) (SubmitTasksResponseObject, error) {
	items := r.Body.Tasks
	if n := len(items); n < 1 || n > asyncflow.MaxBatch {
		return nil, asyncflow.InvalidField("tasks", "must have 1 to %d entries", asyncflow.MaxBatch)
	}
	results := make([]BatchResult, len(items))
	good := make([]asyncflow.NewTask, 0, len(items))
	at := make([]int, 0, len(items)) // where the good ones stand in the request
	now, quota := s.cfg.Store.Clock.Now(), s.contextQuota(ctx)
	for i, item := range items {
		task, err := s.itemIn(item)
		if err == nil {
			err = task.Validate(now, s.cfg.MaxContext)
		}
		if err == nil {
			err = checkContext(task.Context, quota)
		}
		if err != nil {
			results[i].Error = itemProblem(i, err)
			continue
		}
		good, at = append(good, task), append(at, i)
	}
	if err := s.throttle(ctx, len(good)); err != nil {
		return nil, err
	}
	for n, submitted := range s.cfg.Store.Submit(ctx, principalOf(ctx).Tenant, good) {
		if submitted.Err != nil {
			s.logFault(submitted.Err)
			results[at[n]].Error = itemProblem(at[n], submitted.Err)
			continue
		}
		results[at[n]].Task = submittedOut(submitted)
	}
	return SubmitTasks201JSONResponse{Tasks: results}, nil
}

// itemIn returns a task of a batch, or which of its fields can't be read.
func (s *Server) itemIn(item BatchItem) (asyncflow.NewTask, error) {
	if item.Err == nil {
		return taskIn(item.NewTask), s.contract.checkRetry(item.Raw)
	}
	return asyncflow.NewTask{}, s.contract.explainTask(item.Raw, item.Err)
}

// itemProblem names the fields of a task by its place in the batch.
func itemProblem(i int, err error) Problem {
	p := problemOf(err)
	p.Errors = slices.Clone(p.Errors) // several tasks may share an error
	for n, f := range p.Errors {
		if p.Errors[n].Field = fmt.Sprintf("tasks[%d]", i); f.Field != "body" {
			p.Errors[n].Field += "." + f.Field
		}
	}
	return p
}

func (s *Server) logFault(err error) {
	if asyncflow.CodeOf(err) == asyncflow.CodeInternal {
		s.log.Error("submit failed", "error", err)
	}
}

func taskIn(t NewTask) asyncflow.NewTask {
	task := asyncflow.NewTask{Type: t.Type, Context: t.Context, RunAt: t.RunAt, Delay: t.Delay, KeyWindow: t.KeyWindow,
		Options: asyncflow.Options{Priority: t.Priority, Key: t.Key, FlowKey: t.FlowKey}}
	if !t.Retry.IsZero() {
		task.Options.Retry = &t.Retry
	}
	return task
}

func submittedOut(r store.Submitted) SubmittedTask {
	return SubmittedTask{Id: r.ID.String(), Type: r.ID.Type, Stage: r.Stage, Status: r.Status, OrderTime: r.OrderTime, Existing: r.Existing}
}
