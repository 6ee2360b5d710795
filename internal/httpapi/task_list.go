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
		Worker:  p.Worker,
		Text:    p.Text,
		Since:   p.Since,
		Until:   p.Until,
		Limit:   orDefaultPage(p.Limit),

		EndedSince:  p.EndedSince,
		EndedUntil:  p.EndedUntil,
		Fingerprint: p.Fingerprint,
		Attempts:    p.Attempts,
		NoChildren:  isFalse(p.Children),
		Latest:      p.Latest,
		Reverse:     p.Reverse,
	}
	if p.Order == api.Submitted { // the cursors of a list without an order fit
		p.Order = ""
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
	tenant := principalOf(ctx).Tenant
	if p.Order == api.Ended {
		return s.listEnded(ctx, tenant, f, list, p.Cursor)
	}
	if f.After, f.FromType, err = readTaskCursor(list, f.Type, p.Cursor); err != nil {
		return nil, err
	}
	page, err := s.cfg.Store.TaskPage(ctx, tenant, f)
	if err != nil {
		return nil, err
	}
	out := ListTasks200JSONResponse{
		Data:       s.listOut(tenant, page.Tasks),
		NextCursor: writeTaskCursor(list, f.Type, page),
	}
	if len(page.Tasks) < f.Limit {
		out.Searched = api.Searched{Tasks: page.Searched.Tasks, ByIndex: page.Searched.ByIndex,
			From: page.Searched.From, Until: page.Searched.Until, NextType: page.NextType}
	}
	return out, nil
}

// listEnded lists a page of final tasks, the latest end first.
func (s *Server) listEnded(
	ctx context.Context, tenant string, f store.Filter, list cursor.List, text string,
) (ListTasksResponseObject, error) {
	after, err := readEndCursor(list, text)
	if err != nil {
		return nil, err
	}
	tasks, next, err := s.cfg.Store.EndedPage(ctx, tenant, f, after)
	if err != nil {
		return nil, err
	}
	return ListTasks200JSONResponse{
		Data: s.listOut(tenant, tasks),
		NextCursor: list.Write(!next.At.IsZero(), strconv.FormatInt(next.At.UnixMicro(), 36),
			next.ID.String()),
	}, nil
}

// readEndCursor reads the place behind which a page of tasks by their ends begins.
func readEndCursor(list cursor.List, text string) (at store.EndPlace, err error) {
	key, err := list.Read(text, 2)
	if err != nil || key[0] == "" {
		return at, err
	}
	micros, err := strconv.ParseInt(key[0], 36, 64)
	if err != nil {
		return at, cursor.Bad()
	}
	if at.ID, err = asyncflow.ParseTaskID(key[1]); err != nil {
		return at, cursor.Bad()
	}
	at.At = time.UnixMicro(micros)
	return at, nil
}

// listOut returns tasks as lists show them.
func (s *Server) listOut(tenant string, tasks []store.Task) []api.Task {
	all := make([]api.Task, len(tasks))
	for i, task := range tasks {
		all[i] = s.taskOut(tenant, task)
		all[i].WaitsBecause = "" // it is long, and mostly the same for all
	}
	return all
}

// readTaskCursor reads the number behind which a page of tasks begins. The cursors of a list of all
// types also name the type at which the page begins.
func readTaskCursor(
	list cursor.List, taskType, text string,
) (after int64, from string, err error) {
	if taskType != "" {
		after, err = list.ReadNumber(text)
		return after, "", err
	}
	key, err := list.Read(text, 2)
	if err != nil || key[0] == "" {
		return 0, "", err
	}
	after, err = strconv.ParseInt(key[1], 36, 64)
	if err != nil || after < 0 || asyncflow.CheckName(key[0]) != nil {
		return 0, "", cursor.Bad()
	}
	return after, key[0], nil
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
		Worker:  p.Worker,
		Since:   p.Since,
		Until:   p.Until,
		Parent:  parent,
		Labels:  labels,

		EndedSince:  p.EndedSince,
		EndedUntil:  p.EndedUntil,
		Fingerprint: p.Fingerprint,
		Attempts:    p.Attempts,
		NoChildren:  isFalse(p.Children),
	})
	out := GetTaskCount200JSONResponse{Count: n.Tasks, Exact: n.Exact}
	out.Estimate = n.Estimate
	if !n.Exact && n.Estimate == 0 {
		out.Searched = api.CountSearched{Tasks: n.Searched.Tasks, From: n.Searched.From,
			InType: n.EndedAt}
	}
	return out, err
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
