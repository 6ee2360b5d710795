package httpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// GetTask returns a task, when it is final or after the wait that was asked for.
func (s *Server) GetTask(ctx context.Context, r GetTaskRequestObject) (GetTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	wait, err := readWait(r.Params.Wait)
	if err != nil {
		return nil, err
	}
	var task store.Task
	if wait == 0 {
		task, err = s.cfg.Store.Task(ctx, principalOf(ctx).Tenant, id)
	} else {
		tenant := principalOf(ctx).Tenant
		if err := s.streams.take(tenant, 1); err != nil {
			return nil, err
		}
		defer s.streams.give(tenant, 1)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.stopping, cancel)()
		task, err = s.cfg.Store.AwaitFinal(ctx, tenant, id, wait)
	}
	if err != nil {
		return nil, err
	}
	return GetTask200JSONResponse(s.taskOut(principalOf(ctx).Tenant, task)), nil
}

// readWait reads how long to wait for a final state; "" is not at all.
func readWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	var wait asyncflow.Duration
	if err := wait.UnmarshalText([]byte(text)); err != nil {
		return 0, asyncflow.InvalidField("wait", "%v", err)
	}
	if wait < 0 || wait.Std() > asyncflow.MaxWait {
		return 0, asyncflow.InvalidField("wait", "is %s; it must be 0s to %s", wait, asyncflow.MaxWait)
	}
	return wait.Std(), nil
}

const defaultPage = 50

// ListTasks lists a page of tasks.
func (s *Server) ListTasks(ctx context.Context, r ListTasksRequestObject) (ListTasksResponseObject, error) {
	p := r.Params
	f := store.Filter{Type: p.Type, Status: p.Status, Stage: p.Stage, Error: p.Error, Since: p.Since, Until: p.Until, Limit: p.Limit}
	if f.Limit == 0 {
		f.Limit = defaultPage
	}
	var err error
	if f.Before, err = readCursor(p.Cursor); err != nil {
		return nil, err
	}
	page, err := s.cfg.Store.TaskPage(ctx, principalOf(ctx).Tenant, f)
	if err != nil {
		return nil, err
	}
	out := ListTasks200JSONResponse{Data: make([]Task, 0, len(page.Tasks))}
	if page.Next > 0 {
		out.NextCursor = writeCursor(page.Next)
	}
	for _, task := range page.Tasks {
		out.Data = append(out.Data, s.taskOut(principalOf(ctx).Tenant, task))
	}
	return out, nil
}

// A cursor is the number that a page ended at.
func writeCursor(number int64) string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, number, 36))
}

func readCursor(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	number, err2 := strconv.ParseInt(string(raw), 36, 64)
	if err != nil || err2 != nil || number <= 0 {
		return 0, badCursor()
	}
	return number, nil
}

// CancelTask ends a task that is not final.
func (s *Server) CancelTask(ctx context.Context, r CancelTaskRequestObject) (CancelTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	reason := "cancelled by " + cmp.Or(principalOf(ctx).Subject, "a caller")
	if r.Body != nil && r.Body.Reason != "" {
		reason = callbacks.Clean(r.Body.Reason, callbacks.MaxErrorBytes)
	}
	task, err := s.cfg.Store.Cancel(ctx, principalOf(ctx).Tenant, id, reason)
	if err != nil {
		return nil, err
	}
	return CancelTask200JSONResponse(s.taskOut(principalOf(ctx).Tenant, task)), nil
}

// PatchTask changes when a task runs that is pending or waiting.
func (s *Server) PatchTask(ctx context.Context, r PatchTaskRequestObject) (PatchTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	p, err := patchIn(*r.Body, s.cfg.Store.Clock.Now())
	if err == nil {
		err = s.checkPriority(ctx, id.Type, p.Priority)
	}
	if err != nil {
		return nil, err
	}
	notePatch(ctx, p)
	task, err := s.cfg.Store.Change(ctx, principalOf(ctx).Tenant, id, p)
	if err != nil {
		return nil, err
	}
	return PatchTask200JSONResponse(s.taskOut(principalOf(ctx).Tenant, task)), nil
}

// notePatch tells the audit what is to be changed.
func notePatch(ctx context.Context, p asyncflow.Patch) {
	if len(p.Priority) > 0 {
		store.ActOf(ctx).Note("priority", p.Priority)
	}
	if !p.RunAt.IsZero() {
		store.ActOf(ctx).Note("run_at", p.RunAt)
	}
}

func patchIn(in TaskPatch, now time.Time) (asyncflow.Patch, error) {
	p := asyncflow.Patch{Priority: in.Priority, RunAt: in.RunAt}
	if in.Delay != nil {
		switch delay := in.Delay.Std(); {
		case !in.RunAt.IsZero():
			return p, asyncflow.InvalidField("delay", "and run_at exclude each other")
		case delay < 0 || delay > asyncflow.MaxDelay:
			return p, asyncflow.InvalidField("delay", "is %s; it must be 0s to %s (a year)", in.Delay, asyncflow.MaxDelay)
		default:
			p.RunAt = now.Add(delay)
		}
	}
	return p, p.Validate(now)
}

// RedriveTask sets a failed or cancelled task going again.
func (s *Server) RedriveTask(ctx context.Context, r RedriveTaskRequestObject) (RedriveTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	redrive := store.Redrive{}
	if r.Body != nil {
		redrive = store.Redrive{Stage: r.Body.Stage, Context: r.Body.Context}
	}
	if redrive.Context != nil {
		if err := asyncflow.CheckDocument("context", redrive.Context, s.cfg.MaxContext); err != nil {
			return nil, err
		}
		if err := checkContext(redrive.Context, s.contextQuota(ctx)); err != nil {
			return nil, err
		}
	}
	if redrive.Stage != "" {
		store.ActOf(ctx).Note("stage", redrive.Stage)
	}
	if redrive.Context != nil {
		store.ActOf(ctx).Note("context", "edited")
	}
	task, err := s.cfg.Store.Redrive(ctx, principalOf(ctx).Tenant, id, redrive)
	if err != nil {
		return nil, err
	}
	return RedriveTask200JSONResponse(s.taskOut(principalOf(ctx).Tenant, task)), nil
}

// ListAttempts returns a page of the journal of a task.
func (s *Server) ListAttempts(ctx context.Context, r ListAttemptsRequestObject) (ListAttemptsResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	key, err := readKeyCursor(r.Params.Cursor, 1)
	if err != nil {
		return nil, err
	}
	after, err := readSeq(key[0])
	if err != nil {
		return nil, badCursor()
	}
	page, more, err := s.cfg.Store.AttemptPage(ctx, principalOf(ctx).Tenant, id,
		store.AttemptPage{After: after, Limit: pageLimit(r.Params.Limit), Outputs: r.Params.Outputs})
	if err != nil {
		return nil, err
	}
	out := ListAttempts200JSONResponse{Data: make([]Attempt, len(page))}
	for i, a := range page {
		out.Data[i], out.NextCursor = attemptOut(a), writeKeyCursor(more, strconv.Itoa(a.Seq))
	}
	return out, nil
}

func attemptOut(a store.Attempt) Attempt {
	out := Attempt{Seq: a.Seq, At: a.At, Stage: a.Stage, Attempt: a.Attempt, Outcome: AttemptOutcome(a.Outcome),
		Final: AttemptFinal(a.Final), Endpoint: a.Endpoint, DurationMs: float32(a.Duration.Seconds() * 1000),
		StatusCode: a.Status, Error: a.Error, Output: a.Output, OutputBytes: a.LeftOut,
		OutputExcerpt: a.Excerpt}
	if a.NextTime != nil {
		out.NextTime = *a.NextTime
	}
	return out
}

func (s *Server) taskOut(tenant string, t store.Task) Task {
	out := Task{ID: t.ID.String(), Type: t.ID.Type, Status: t.Status, Stage: t.Stage, Attempt: t.Attempt,
		MaxAttempts: s.maxAttempts(tenant, t), Priority: t.Options.Priority, Key: t.Options.Key, FlowKey: t.Options.FlowKey, WaitsFor: TaskWaitsFor(t.WaitsFor),
		OrderTime: t.OrderTime, Deadline: t.Deadline, Error: t.Error, CreatedAt: t.CreatedAt, FinishedAt: t.FinishedAt,
		Context: t.Context, Result: t.Result}
	if t.Progress != nil {
		out.Progress = Progress{Percent: t.Progress.Percent, Note: t.Progress.Note}
	}
	return out
}

// maxAttempts returns how many attempts the task's stage has; 0: unknown.
func (s *Server) maxAttempts(tenant string, t store.Task) int {
	taskType, err := s.cfg.Store.Catalog.Type(tenant, t.ID.Type)
	if err != nil {
		return 0
	}
	return taskType.MaxAttempts(t.Stage, t.Options)
}
