package httpapi

import (
	"context"
	"time"

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
	n := store.NewOperation{
		Kind:   store.CancelTasks,
		Reason: cancelReason(ctx, b.Reason),
		Pace:   float64(b.Pace),
		Filter: bulkFilter(b.Type, asyncflow.Status(b.Status), b.Stage, b.Error, b.Since, b.Until,
			b.Children),
	}
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
	n := store.NewOperation{
		Kind:      store.RedriveTasks,
		FromStage: b.FromStage,
		Pace:      float64(b.Pace),
		Filter: bulkFilter(b.Type, asyncflow.Status(b.Status), b.Stage, b.Error, b.Since, b.Until,
			b.Children),
	}
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
	n := store.NewOperation{
		Kind:     store.PrioritizeTasks,
		Priority: p.Priority,
		Pace:     float64(b.Pace),
		Filter: bulkFilter(b.Type, asyncflow.Status(b.Status), b.Stage, b.Error, b.Since, b.Until,
			b.Children),
	}
	notePatch(ctx, p)
	count, o, err := s.countOrStart(ctx, n, b.DryRun)
	if b.DryRun {
		return PrioritizeTasks200JSONResponse{Count: count}, err
	}
	return PrioritizeTasks202JSONResponse(operationOut(o)), err
}

// countOrStart counts the tasks of an operation, for a dry run, or starts it.
func (s *Server) countOrStart(
	ctx context.Context, n store.NewOperation, dryRun bool,
) (count int64, o store.Operation, err error) {
	call, tenant := store.AuditedCallOf(ctx), principalOf(ctx).Tenant
	call.About(n.Filter.Type)
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

// bulkFilter returns the filter that the bodies of all bulk calls have.
func bulkFilter(
	taskType string, status asyncflow.Status, stage, text string, since, until time.Time,
	children *bool,
) store.Filter {
	return store.Filter{Type: taskType, Status: status, Stage: stage, Error: text, Since: since,
		Until: until, NoChildren: isFalse(children)}
}

// isFalse reports whether a flag that is true by default is false.
func isFalse(flag *bool) bool { return flag != nil && !*flag }

func operationOut(o store.Operation) api.Operation {
	var children *bool
	if o.Filter.NoChildren {
		children = new(bool)
	}
	return api.Operation{
		ID:   o.ID,
		Kind: api.OperationKind(o.Kind),
		Type: o.Filter.Type,
		Filter: api.OperationFilter{
			Status: o.Filter.Status,
			Stage:  o.Filter.Stage,
			Error:  o.Filter.Error,
			Since:  o.Filter.Since,
			Until:  o.Filter.Until,

			Children: children,
		},
		State:      api.OperationState(o.State),
		Total:      o.Total,
		Done:       o.Done,
		Skipped:    o.Skipped,
		Pace:       float32(o.Pace),
		Error:      o.Error,
		CreatedAt:  o.CreatedAt,
		FinishedAt: o.FinishedAt,
	}
}
