package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// PatchTask is to be built.
func (s *Server) PatchTask(ctx context.Context, r PatchTaskRequestObject) (PatchTaskResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}

// PauseTaskType is to be built.
func (s *Server) PauseTaskType(ctx context.Context, r PauseTaskTypeRequestObject) (PauseTaskTypeResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}

// ResumeTaskType is to be built.
func (s *Server) ResumeTaskType(ctx context.Context, r ResumeTaskTypeRequestObject) (ResumeTaskTypeResponseObject, error) {
	return nil, asyncflow.Errorf(asyncflow.CodeInternal, "to be built")
}
