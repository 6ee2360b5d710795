package httpapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
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
	return GetTask200JSONResponse(s.taskOut(tenant, task)), err
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

// follow returns a task once it is final, or in its state after wait, or when the server stops.
func (s *Server) follow(
	ctx context.Context, tenant string, id asyncflow.TaskID, wait time.Duration,
) (store.Task, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	return s.cfg.Store.AwaitFinal(ctx, tenant, id, wait)
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

// ListTasks lists a page of tasks.
func (s *Server) ListTasks(
	ctx context.Context, r ListTasksRequestObject,
) (ListTasksResponseObject, error) {
	p := r.Params
	f := store.Filter{
		Type:    p.Type,
		Status:  p.Status,
		Stage:   p.Stage,
		Error:   p.Error,
		Code:    p.Code,
		Key:     p.Key,
		FlowKey: p.FlowKey,
		Text:    p.Text,
		Since:   p.Since,
		Until:   p.Until,
		Limit:   orDefaultPage(p.Limit),

		EndedSince: p.EndedSince,
		EndedUntil: p.EndedUntil,
		Attempts:   p.Attempts,
		NoChildren: isFalse(p.Children),
		Latest:     p.Latest,
	}
	list := cursor.Of("tasks", p)
	var err error
	if f.Parent, err = readParent(p.Parent, p.Children); err != nil {
		return nil, err
	}
	if f.Latest && p.Parent == "" {
		return nil, asyncflow.InvalidField("latest", "needs parent: it selects its latest children")
	}
	if f.Labels, err = readLabels(p.User, p.Tags, p.AnyTags, p.Metadata); err != nil {
		return nil, err
	}
	if f.Before, f.FromType, err = readTaskCursor(list, f.Type, p.Cursor); err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	page, err := s.cfg.Store.TaskPage(ctx, tenant, f)
	if err != nil {
		return nil, err
	}
	out := ListTasks200JSONResponse{
		Data:       make([]api.Task, len(page.Tasks)),
		NextCursor: writeTaskCursor(list, f.Type, page),
	}
	for i, task := range page.Tasks {
		out.Data[i] = s.taskOut(tenant, task)
		out.Data[i].WaitsBecause = "" // it is long, and mostly the same for all
	}
	if len(page.Tasks) < f.Limit {
		out.Searched = api.Searched{Tasks: page.Searched.Tasks, From: page.Searched.From,
			Until: page.Searched.Until, NextType: page.NextType}
	}
	return out, nil
}

// readTaskCursor reads the place where a page of tasks begins. The cursors of a list of all types
// also have the type at which the page begins.
func readTaskCursor(
	list cursor.List, taskType, text string,
) (before int64, from string, err error) {
	if taskType != "" {
		before, err = list.ReadNumber(text)
		return before, "", err
	}
	key, err := list.Read(text, 2)
	if err != nil || key[0] == "" {
		return 0, "", err
	}
	before, err = strconv.ParseInt(key[1], 36, 64)
	if err != nil || before < 0 || asyncflow.CheckName(key[0]) != nil {
		return 0, "", cursor.Bad()
	}
	return before, key[0], nil
}

// writeTaskCursor returns the cursor of the page after one; "": there is none.
func writeTaskCursor(list cursor.List, taskType string, page store.Page) string {
	if taskType != "" {
		return list.WriteNumber(page.Next)
	}
	return list.Write(page.NextType != "", page.NextType, strconv.FormatInt(page.Next, 36))
}

// readParent parses the id of a parent; "" is none.
func readParent(text string, children *bool) (id asyncflow.TaskID, err error) {
	if text == "" {
		return id, nil
	}
	if isFalse(children) {
		return id, asyncflow.InvalidField("children", "is false, but parent asks for children")
	}
	if id, err = asyncflow.ParseTaskID(text); err != nil {
		err = asyncflow.InvalidField("parent",
			"must look like thumbnails.1.42 (type.position.number)")
	}
	return id, err
}

// readLabels parses the parameters that select tasks by their labels.
func readLabels(user, tags, anyTags, metadata string) (l store.LabelFilter, err error) {
	l.User = user
	if l.Tags, err = readTags("tags", tags); err != nil {
		return l, err
	}
	if l.AnyTags, err = readTags("any_tags", anyTags); err != nil {
		return l, err
	}
	if metadata == "" {
		return l, nil
	}
	var found bool
	l.Name, l.Value, found = strings.Cut(metadata, "=")
	if !found || !asyncflow.IsLabelName(l.Name) {
		err = asyncflow.InvalidField("metadata", "must be name=value, such as order=4711")
	}
	return l, err
}

// readTags parses tags that are separated by commas; "" stands for none.
func readTags(field, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	tags := strings.Split(text, ",")
	for _, tag := range tags {
		if !asyncflow.IsLabelName(tag) {
			return nil, asyncflow.InvalidField(field, "has %q, which can't be a tag", tag)
		}
	}
	if n := len(tags); n > asyncflow.MaxTags {
		return nil, asyncflow.InvalidField(field, "has %d tags; the limit is %d", n,
			asyncflow.MaxTags)
	}
	return tags, nil
}

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
	}
	if w := t.Signal; w.Name != "" && !w.Until.IsZero() {
		out.Signal = api.SignalWait{Name: w.Name, Until: w.Until, Decisions: w.Decisions}
	}
	if t.Progress != nil {
		out.Progress = api.Progress{Percent: t.Progress.Percent, Note: t.Progress.Note}
	}
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
	out.OnFinal = onFinalOut(t.OnFinal)
	if n := t.Options.Notification; n != nil {
		out.Notification = &api.Notification{Event: n.Event, Task: n.Task, URL: n.URL}
	}
	for _, id := range t.Notifications {
		out.Notifications = append(out.Notifications, id.String())
	}
	out.Steps = t.Steps
	for _, v := range t.Path {
		out.Path = append(out.Path, api.Visit{Stage: v.Stage, Visit: v.Visit, Attempts: v.Attempts})
	}
	for _, id := range t.Redriven {
		out.Redriven = append(out.Redriven, id.String())
	}
	return out
}

// stoppedText says which endpoints of a stage get no deliveries, until when and why.
func (s *Server) stoppedText(tenant, taskType, stage string) string {
	t, err := s.cfg.Store.Catalog.Type(tenant, taskType)
	if err != nil {
		return ""
	}
	return asyncflow.StoppedText(t.Endpoints(stage), s.cfg.Store.Clock.Now())
}

// maxAttempts returns how many attempts the task's stage has; 0: unknown.
func (s *Server) maxAttempts(tenant string, t store.Task) int {
	taskType, err := s.cfg.Store.Catalog.Type(tenant, t.ID.Type)
	if err != nil {
		return 0
	}
	return taskType.MaxAttempts(t.Stage, t.Options)
}

// GetTaskCount counts the tasks that a filter finds, as far as that is cheap.
func (s *Server) GetTaskCount(
	ctx context.Context, r GetTaskCountRequestObject,
) (GetTaskCountResponseObject, error) {
	p := r.Params
	parent, err := readParent(p.Parent, p.Children)
	if err != nil {
		return nil, err
	}
	labels, err := readLabels(p.User, p.Tags, p.AnyTags, p.Metadata)
	if err != nil {
		return nil, err
	}
	n, err := s.cfg.Store.TaskCount(ctx, principalOf(ctx).Tenant, store.Filter{
		Type:    p.Type,
		Status:  p.Status,
		Stage:   p.Stage,
		Error:   p.Error,
		Code:    p.Code,
		Key:     p.Key,
		FlowKey: p.FlowKey,
		Since:   p.Since,
		Until:   p.Until,
		Parent:  parent,
		Labels:  labels,

		EndedSince: p.EndedSince,
		EndedUntil: p.EndedUntil,
		Attempts:   p.Attempts,
		NoChildren: isFalse(p.Children),
	})
	return GetTaskCount200JSONResponse{Count: n.Tasks, Exact: n.Exact}, err
}

// CountTasks starts to count the tasks that match a filter.
func (s *Server) CountTasks(
	ctx context.Context, r CountTasksRequestObject,
) (CountTasksResponseObject, error) {
	n, err := newOperation(store.CountAll, r.Body)
	if err != nil {
		return nil, err
	}
	_, o, err := s.countOrStart(ctx, n, false)
	return CountTasks202JSONResponse(operationOut(o)), err
}
