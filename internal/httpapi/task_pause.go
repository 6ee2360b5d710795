package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
)

// PauseTask keeps children of a task from beginning.
func (s *Server) PauseTask(
	ctx context.Context, r PauseTaskRequestObject,
) (PauseTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	reason := ""
	if r.Body != nil {
		reason = callbacks.Clean(r.Body.Reason, callbacks.MaxErrorBytes)
	}
	tenant := principalOf(ctx).Tenant
	task, err := s.cfg.Store.PauseTree(ctx, tenant, id, reason)
	return PauseTask200JSONResponse(s.changedTask(tenant, task)), err
}

// ResumeTask lets the children of a paused task begin again.
func (s *Server) ResumeTask(
	ctx context.Context, r ResumeTaskRequestObject,
) (ResumeTaskResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	task, err := s.cfg.Store.ResumeTree(ctx, tenant, id)
	return ResumeTask200JSONResponse(s.changedTask(tenant, task)), err
}
