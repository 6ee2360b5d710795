package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// GetCheckpoint returns what the latest attempt of a task left for the next one.
func (s *Server) GetCheckpoint(
	ctx context.Context, r GetCheckpointRequestObject,
) (GetCheckpointResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	c, err := s.cfg.Store.Checkpoint(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	return GetCheckpoint200JSONResponse{Stage: c.Stage, WrittenAt: c.WrittenAt,
		Document: c.Document}, nil
}
