package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// GetStats is to be built.
func (s *Server) GetStats(ctx context.Context, r GetStatsRequestObject) (GetStatsResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}
