package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// EraseTask erases the contents of a final task.
func (s *Server) EraseTask(
	ctx context.Context, r EraseTaskRequestObject,
) (EraseTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	p := principalOf(ctx)
	task, err := s.cfg.Store.Erase(ctx, p.Tenant, id, p.Subject)
	return EraseTask200JSONResponse(s.changedTask(p.Tenant, task)), err
}

// EraseTasks counts the tasks that match a filter (dry run), or starts to erase them.
func (s *Server) EraseTasks(
	ctx context.Context, r EraseTasksRequestObject,
) (EraseTasksResponseObject, error) {
	b := r.Body
	n, err := newOperation(store.EraseTasks, b)
	if err != nil {
		return nil, err
	}
	n.By = principalOf(ctx).Subject
	n.Pace = float64(b.Pace)
	count, o, err := s.countOrStart(ctx, n, b.DryRun)
	if b.DryRun {
		return EraseTasks200JSONResponse{Count: count}, err
	}
	return EraseTasks202JSONResponse(operationOut(o)), err
}

func erasureOut(e asyncflow.Erasure) *api.Erasure { return &api.Erasure{At: e.At, By: e.By} }
