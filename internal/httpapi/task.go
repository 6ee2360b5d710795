package httpapi

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// GetTask returns a task: at once, or when it is final or the wait that was asked for is over.
func (s *Server) GetTask(
	ctx context.Context, r GetTaskRequestObject,
) (GetTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	wait, err := readWait(r.Params.Wait)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	var task store.Task
	if wait == 0 {
		task, err = s.cfg.Store.Task(ctx, tenant, id)
	} else {
		task, err = s.awaitFinal(ctx, tenant, id, wait)
	}
	if err != nil {
		return nil, err
	}
	setETag(ctx, task.ETag())
	return GetTask200JSONResponse(s.wholeTask(tenant, task)), nil
}

func (s *Server) awaitFinal(
	ctx context.Context, tenant string, id asyncflow.TaskID, wait time.Duration,
) (store.Task, error) {
	give, err := s.takeWait(tenant)
	if err != nil {
		return store.Task{}, err
	}
	defer give()
	return s.follow(ctx, tenant, id, wait)
}

// follow returns a task once it is final, or in its state after wait, or when the server stops. It
// fails when the caller's token is revoked.
func (s *Server) follow(
	ctx context.Context, tenant string, id asyncflow.TaskID, wait time.Duration,
) (store.Task, error) {
	ctx, cancel := s.cfg.Verifier.FollowToken(ctx, principalOf(ctx))
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	task, err := s.cfg.Store.AwaitFinal(ctx, tenant, id, wait)
	if refusal := auth.Revoked(ctx); refusal != nil {
		return store.Task{}, refusal
	}
	return task, err
}

// readWait parses how long to wait for a final state; "" is not at all.
func readWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	var wait asyncflow.Duration
	if err := wait.UnmarshalText([]byte(text)); err != nil {
		return 0, asyncflow.InvalidField("wait", "%v", err)
	}
	if wait.Std() < 0 || wait.Std() > asyncflow.MaxWait {
		return 0, asyncflow.InvalidField("wait", "is %s; it must be 0s to %s",
			wait, asyncflow.MaxWait)
	}
	return wait.Std(), nil
}

// wholeTask is taskOut with the fingerprint of the last error, which takes time.
func (s *Server) wholeTask(tenant string, t store.Task) api.Task {
	out := s.taskOut(tenant, t)
	if t.Error != "" {
		out.Fingerprint = asyncflow.Fingerprint(t.Code, asyncflow.ErrorPattern(t.Error))
	}
	return out
}

// taskOut returns the document of a task.
func (s *Server) taskOut(tenant string, t store.Task) api.Task {
	out := api.Task{
		ID:          t.ID.String(),
		Type:        t.ID.Type,
		Status:      t.Status,
		Stage:       t.Stage,
		Attempt:     t.Attempt,
		MaxAttempts: s.maxAttempts(tenant, t),
		Priority:    t.Options.Priority,
		Key:         t.Options.Key,
		FlowKey:     t.Options.FlowKey,
		User:        t.Options.User,
		Tags:        t.Options.Tags,
		Metadata:    t.Options.Metadata,
		Trace:       t.Options.Trace,
		WaitsFor:    api.TaskWaitsFor(t.WaitsFor),
		OrderTime:   t.OrderTime,
		Deadline:    t.Deadline,
		Error:       t.Error,
		ErrorCode:   t.Code,
		CreatedAt:   t.CreatedAt,
		FinishedAt:  t.FinishedAt,
		Context:     t.Context,
		Result:      t.Result,
	}
	if t.WaitsFor == asyncflow.WaitUnhealthy {
		out.WaitsBecause = s.stoppedText(tenant, t.ID.Type, t.Stage)
	} else if t.Turn != "" {
		out.WaitsBecause = t.Turn
	} else if t.WaitsFor == asyncflow.WaitClaimer {
		out.WaitsBecause = t.Options.Claim.Text()
	}
	if w := t.Signal; w.Name != "" && !w.Until.IsZero() {
		out.Signal = api.SignalWait{Name: w.Name, Until: w.Until, Decisions: w.Decisions}
	}
	if t.Progress != nil {
		out.Progress = api.Progress{Percent: t.Progress.Percent, Note: t.Progress.Note}
	}
	if !t.FinishedAt.IsZero() {
		out.TurnaroundMs = milliseconds(t.FinishedAt.Sub(t.CreatedAt))
	}
	if r := t.Run; r != nil {
		out.Run = &api.TaskRun{Since: r.Since, WaitMs: waitOf(r.Wait),
			LastHeartbeat: r.Heartbeat, Node: r.Node, Worker: r.Worker, EndpointID: r.Endpoint,
			Endpoint: r.URL, Claimer: r.Claimer}
	}
	showFamily(&out, t)
	showWay(&out, t)
	return out
}

// showFamily shows the tasks above a task and below it, and which it waits for.
func showFamily(out *api.Task, t store.Task) {
	if c := t.Children; c != nil {
		out.Children = &api.Children{Total: c.Total, Waiting: c.Waiting, Pending: c.Pending,
			Running: c.Running, Succeeded: c.Succeeded, Failed: c.Failed, Cancelled: c.Cancelled}
	}
	out.ChildTypes = t.ChildTypes
	if c := t.Tree; c != nil {
		out.Tree = &api.TreeCounts{Levels: c.Levels, Total: c.Total, Succeeded: c.Succeeded,
			Failed: c.Failed, Cancelled: c.Cancelled, AtLeast: c.AtLeast}
	}
	if p := t.Pause; !p.Since.IsZero() {
		out.Paused = &api.PausedTask{Since: p.Since, Reason: p.Reason}
	}
	if c := t.Options.Child; c != nil {
		parent := asyncflow.TaskID{Type: t.ID.Type, Number: c.Parent}
		out.ChildOf = &api.ChildOf{Parent: parent.String(), Index: c.Index, Count: c.Count}
	}
	if by := t.Options.Spawned; by != nil {
		out.Parent = by.Parent
		if p := by.Part; p != nil {
			out.ChildOf = &api.ChildOf{Parent: by.Parent, Index: p.Index, Count: p.Count}
		}
	}
	for _, c := range t.Spawned {
		out.Spawned = append(out.Spawned, api.SpawnedCount{Type: c.Type, Count: c.Count})
	}
	for _, d := range t.Dependencies {
		one := api.DependencyState{Type: d.Type, Key: d.Key, OnFailure: string(d.Failure()),
			Status: api.DependencyStateStatus(d.Status), Until: d.Until}
		if d.Task.Number != 0 {
			one.Task = d.Task.String()
		}
		out.Dependencies = append(out.Dependencies, one)
	}
}

// showWay shows how a task came to where it stands, and who is told of its end.
func showWay(out *api.Task, t store.Task) {
	out.OnFinal = onFinalOut(t.OnFinal)
	if n := t.Options.Notification; n != nil {
		out.Notification = &api.Notification{Event: n.Event, Task: n.Task, URL: n.URL}
	}
	for _, id := range t.Notifications {
		out.Notifications = append(out.Notifications, id.String())
	}
	out.RerunOf = t.Options.RerunOf
	if l := t.Options.Lifetime; l != nil {
		out.Lifetime = api.Lifetime{StartBy: l.StartBy, EndBy: l.EndBy}
	}
	out.Claim = t.Options.Claim
	out.Retry = t.Options.Retry
	out.Steps = t.Steps
	for _, v := range t.Path {
		out.Path = append(out.Path, api.Visit{Stage: v.Stage, Visit: v.Visit, Attempts: v.Attempts})
	}
	if e := t.Options.Erased; e != nil {
		out.Erased = erasureOut(*e)
	}
	for _, id := range t.Redriven {
		out.Redriven = append(out.Redriven, id.String())
	}
}

// stoppedText says which endpoints of a stage get no deliveries, until when and why.
func (s *Server) stoppedText(tenant, taskType, stage string) string {
	t, err := s.cfg.Store.Catalog.Type(tenant, taskType)
	if err != nil {
		return ""
	}
	return asyncflow.StoppedText(t.Endpoints(stage), s.cfg.Store.Clock.Now())
}

// maxAttempts returns how many attempts the task's stage allows; 0: unknown.
func (s *Server) maxAttempts(tenant string, t store.Task) int {
	taskType, err := s.cfg.Store.Catalog.Type(tenant, t.ID.Type)
	if err != nil {
		return 0
	}
	return taskType.MaxAttempts(t.Stage, t.Options)
}
