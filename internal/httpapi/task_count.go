package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow/store"
)

// GetTaskCount counts the tasks that a filter finds, as far as that is cheap.
func (s *Server) GetTaskCount(
	ctx context.Context, r GetTaskCountRequestObject,
) (GetTaskCountResponseObject, error) {
	p := r.Params
	parent, err := readParent(p.Parent, p.Children)
	if err != nil {
		return nil, err
	}
	n, err := s.cfg.Store.TaskCount(ctx, principalOf(ctx).Tenant, store.Filter{
		Type:   p.Type,
		Status: p.Status,
		Stage:  p.Stage,
		Error:  p.Error,
		Key:    p.Key,
		Since:  p.Since,
		Until:  p.Until,
		Parent: parent,

		NoChildren: isFalse(p.Children),
	})
	return GetTaskCount200JSONResponse{Count: n.Tasks, Exact: n.Exact}, err
}

// CountTasks starts to count the tasks that match a filter.
func (s *Server) CountTasks(
	ctx context.Context, r CountTasksRequestObject,
) (CountTasksResponseObject, error) {
	b := r.Body
	_, o, err := s.countOrStart(ctx, store.NewOperation{
		Kind:   store.CountAll,
		Filter: bulkFilter(b.Type, b.Status, b.Stage, b.Error, b.Since, b.Until, b.Children),
	}, false)
	return CountTasks202JSONResponse(operationOut(o)), err
}
