package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/store"
)

// CancelTasks counts the tasks that match a filter (dry run), or starts to cancel them.
func (s *Server) CancelTasks(
	ctx context.Context, r CancelTasksRequestObject,
) (CancelTasksResponseObject, error) {
	b := r.Body
	n, err := newOperation(store.CancelTasks, b)
	if err != nil {
		return nil, err
	}
	n.Reason = cancelReason(ctx, b.Reason)
	n.Pace = float64(b.Pace)
	count, o, err := s.countOrStart(ctx, n, b.DryRun)
	if b.DryRun {
		return CancelTasks200JSONResponse{Count: count}, err
	}
	return CancelTasks202JSONResponse(operationOut(o)), err
}

// RedriveTasks counts the tasks that match a filter (dry run), or starts to redrive them.
func (s *Server) RedriveTasks(
	ctx context.Context, r RedriveTasksRequestObject,
) (RedriveTasksResponseObject, error) {
	b := r.Body
	n, err := newOperation(store.RedriveTasks, b)
	if err != nil {
		return nil, err
	}
	n.FromStage = b.FromStage
	if err := s.setLifetime(ctx, &n, b.StartBy, b.EndBy); err != nil {
		return nil, err
	}
	n.Pace = float64(b.Pace)
	count, o, err := s.countOrStart(ctx, n, b.DryRun)
	if b.DryRun {
		return RedriveTasks200JSONResponse{Count: count}, err
	}
	return RedriveTasks202JSONResponse(operationOut(o)), err
}

// PrioritizeTasks counts the tasks that match a filter (dry run), or starts to change their
// priority.
func (s *Server) PrioritizeTasks(
	ctx context.Context, r PrioritizeTasksRequestObject,
) (PrioritizeTasksResponseObject, error) {
	b := r.Body
	p := asyncflow.Patch{Priority: b.Priority}
	if len(p.Priority) == 0 {
		return nil, asyncflow.InvalidField("priority", "is missing")
	}
	if err := p.Validate(s.cfg.Store.Clock.Now()); err != nil {
		return nil, err
	}
	n, err := newOperation(store.PrioritizeTasks, b)
	if err != nil {
		return nil, err
	}
	n.Priority = p.Priority
	n.Pace = float64(b.Pace)
	notePatch(ctx, p)
	count, o, err := s.countOrStart(ctx, n, b.DryRun)
	if b.DryRun {
		return PrioritizeTasks200JSONResponse{Count: count}, err
	}
	return PrioritizeTasks202JSONResponse(operationOut(o)), err
}

// DelayTasks counts the tasks that match a filter (dry run), or starts to change when they run.
func (s *Server) DelayTasks(
	ctx context.Context, r DelayTasksRequestObject,
) (DelayTasksResponseObject, error) {
	b := r.Body
	now := s.cfg.Store.Clock.Now()
	var p asyncflow.Patch
	var err error
	if p.RunAt, err = runAtIn(b.RunAt, b.Delay, now); err != nil {
		return nil, err
	}
	if p.RunAt.IsZero() {
		return nil, asyncflow.InvalidField("delay", "is missing: give a delay or a run_at")
	}
	if err := p.Validate(now); err != nil {
		return nil, err
	}
	n, err := newOperation(store.DelayTasks, b)
	if err != nil {
		return nil, err
	}
	n.RunAt = p.RunAt
	n.Pace = float64(b.Pace)
	notePatch(ctx, p)
	count, o, err := s.countOrStart(ctx, n, b.DryRun)
	if b.DryRun {
		return DelayTasks200JSONResponse{Count: count}, err
	}
	return DelayTasks202JSONResponse(operationOut(o)), err
}

// RerunTasks counts the tasks that match a filter (dry run), or starts to run them again.
func (s *Server) RerunTasks(
	ctx context.Context, r RerunTasksRequestObject,
) (RerunTasksResponseObject, error) {
	b := r.Body
	n, err := newOperation(store.RerunTasks, b)
	if err != nil {
		return nil, err
	}
	n.Filter.NoChildren = true
	if n.ContextPatch = b.ContextPatch; n.ContextPatch != nil {
		if err := asyncflow.CheckContextPatch(n.ContextPatch); err != nil {
			return nil, err
		}
		store.AuditedCallOf(ctx).Note("context", "edited")
	}
	if err := s.setLifetime(ctx, &n, b.StartBy, b.EndBy); err != nil {
		return nil, err
	}
	n.Pace = float64(b.Pace)
	count, o, err := s.countOrStart(ctx, n, b.DryRun)
	if b.DryRun {
		return RerunTasks200JSONResponse{Count: count}, err
	}
	return RerunTasks202JSONResponse(operationOut(o)), err
}

// setLifetime sets the lifetime of the tasks of an operation.
func (s *Server) setLifetime(
	ctx context.Context, n *store.NewOperation, start, end asyncflow.Deadline,
) error {
	if start.IsZero() && end.IsZero() {
		return nil
	}
	if err := asyncflow.CheckDeadlines(start, end); err != nil {
		return err
	}
	if err := s.cfg.Store.CheckKnownLately(asyncflow.CapStartedLifetimes); err != nil {
		return err
	}
	n.StartBy = start
	n.EndBy = end
	noteLifetime(ctx, start, end)
	return nil
}

// countOrStart counts the tasks of an operation, for a dry run, or starts it.
func (s *Server) countOrStart(
	ctx context.Context, n store.NewOperation, dryRun bool,
) (count int64, o store.Operation, err error) {
	call, tenant := store.AuditedCallOf(ctx), principalOf(ctx).Tenant
	call.About(n.Filter.Type)
	if n.AllTypes {
		call.Note("all_types", true)
	}
	if dryRun {
		call.Note("dry_run", true)
		count, err = s.cfg.Store.CountTasks(ctx, tenant, n)
		return count, o, err
	}
	o, err = s.cfg.Store.StartOperation(ctx, tenant, n)
	return 0, o, err
}

// ListOperations lists a page of the tenant's operations.
func (s *Server) ListOperations(
	ctx context.Context, r ListOperationsRequestObject,
) (ListOperationsResponseObject, error) {
	list := cursor.Of("operations", r.Params)
	after, err := list.ReadPlace(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	page, more, err := s.cfg.Store.OperationPage(ctx, principalOf(ctx).Tenant, after,
		pageLimit(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	out := ListOperations200JSONResponse{Data: make([]api.Operation, len(page))}
	for i, o := range page {
		key := cursor.PlaceKey(store.Place{At: o.CreatedAt, ID: o.ID})
		out.Data[i], out.NextCursor = operationOut(o), list.Write(more, key...)
	}
	return out, nil
}

// GetOperation returns one operation.
func (s *Server) GetOperation(
	ctx context.Context, r GetOperationRequestObject,
) (GetOperationResponseObject, error) {
	id, err := operationID(r.ID)
	if err != nil {
		return nil, err
	}
	o, err := s.cfg.Store.Operation(ctx, principalOf(ctx).Tenant, id)
	return GetOperation200JSONResponse(operationOut(o)), err
}

// StopOperation stops one operation.
func (s *Server) StopOperation(
	ctx context.Context, r StopOperationRequestObject,
) (StopOperationResponseObject, error) {
	id, err := operationID(r.ID)
	if err != nil {
		return nil, err
	}
	o, err := s.cfg.Store.StopOperation(ctx, principalOf(ctx).Tenant, id)
	return StopOperation200JSONResponse(operationOut(o)), err
}

// operationID parses the id in a path. Only UUIDs name operations.
func operationID(raw string) (string, error) {
	id, err := uuid.Parse(raw)
	if err != nil {
		return "", asyncflow.Errorf(asyncflow.CodeNotFound, "there is no operation %q", raw)
	}
	return id.String(), nil
}

// newOperation returns an operation of a kind with the filter in a body. The bodies of all bulk
// calls name the members of their filters alike, and a count knows all of them.
func newOperation(kind store.OperationKind, body any) (n store.NewOperation, err error) {
	var b api.BulkCount
	doc, err := json.Marshal(body)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(doc, &b); err != nil {
		return n, err
	}
	ids, err := readIDs(&b)
	switch {
	case err != nil:
		return n, err
	case b.Type == "" && !b.AllTypes:
		return n, asyncflow.InvalidField("type",
			"is missing: name one, or ask for all_types instead")
	case b.Type != "" && b.AllTypes:
		return n, asyncflow.InvalidField("all_types", "and type exclude each other")
	}
	parent, err := readParent(b.Parent, b.Children)
	if err != nil {
		return n, err
	}
	labels, err := readLabels(b.User, b.Tags, b.AnyTags, b.Metadata)
	return store.NewOperation{Kind: kind, AllTypes: b.AllTypes, Filter: store.Filter{
		Type:    b.Type,
		Status:  b.Status,
		Stage:   b.Stage,
		Error:   b.Error,
		Code:    b.Code,
		Key:     b.Key,
		FlowKey: b.FlowKey,
		Worker:  b.Worker,
		Since:   b.Since,
		Until:   b.Until,
		Parent:  parent,
		Labels:  labels,
		IDs:     ids,

		EndedSince:  b.EndedSince,
		EndedUntil:  b.EndedUntil,
		Fingerprint: b.Fingerprint,
		Attempts:    b.Attempts,
		NoChildren:  isFalse(b.Children),
	}}, err
}

// readIDs parses the ids of a filter. Without a type and all_types, they say of which types they
// are.
func readIDs(b *api.BulkCount) ([]asyncflow.TaskID, error) {
	ids := make([]asyncflow.TaskID, len(b.Ids))
	for i, text := range b.Ids {
		id, err := asyncflow.ParseTaskID(text)
		switch {
		case err != nil:
			return nil, asyncflow.InvalidField(fmt.Sprintf("ids.%d", i),
				"must look like thumbnails.1.42 (type.position.number)")
		case b.Type != "" && id.Type != b.Type:
			return nil, asyncflow.InvalidField(fmt.Sprintf("ids.%d", i),
				"is a task of %s, and type is %s", id.Type, b.Type)
		}
		ids[i] = id
	}
	if len(ids) == 0 || b.Type != "" || b.AllTypes {
		return ids, nil
	}
	b.Type = ids[0].Type
	if slices.ContainsFunc(ids, func(id asyncflow.TaskID) bool { return id.Type != b.Type }) {
		b.Type = ""
		b.AllTypes = true
	}
	return ids, nil
}

// isFalse reports whether a flag that is true by default is false.
func isFalse(flag *bool) bool { return flag != nil && !*flag }
