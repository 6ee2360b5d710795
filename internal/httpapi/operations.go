package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// CancelTasks is to be built.
func (s *Server) CancelTasks(ctx context.Context, r CancelTasksRequestObject) (CancelTasksResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}

// RedriveTasks is to be built.
func (s *Server) RedriveTasks(ctx context.Context, r RedriveTasksRequestObject) (RedriveTasksResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}

// ListOperations is to be built.
func (s *Server) ListOperations(ctx context.Context, r ListOperationsRequestObject) (ListOperationsResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}

// GetOperation is to be built.
func (s *Server) GetOperation(ctx context.Context, r GetOperationRequestObject) (GetOperationResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}

// StopOperation is to be built.
func (s *Server) StopOperation(ctx context.Context, r StopOperationRequestObject) (StopOperationResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}
