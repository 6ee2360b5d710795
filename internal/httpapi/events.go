package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// TaskEvents is to be built.
func (s *Server) TaskEvents(ctx context.Context, r TaskEventsRequestObject) (TaskEventsResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}
