package store

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// PauseTask keeps a task that is pending or waiting from being attempted until ResumeTask, and
// returns it. Of a task that waits for its children, it pauses these, but not those that are
// running. A task that is running or final is CodeConflict; one that is paused stays as it is.
func (s *Store) PauseTask(ctx context.Context, tenant string, id asyncflow.TaskID) (Task, error) {
	return Task{}, asyncflow.Errorf(asyncflow.CodeUnavailable, "not built")
}

// ResumeTask ends the pause of a task, and returns it. One that isn't paused stays as it is.
func (s *Store) ResumeTask(ctx context.Context, tenant string, id asyncflow.TaskID) (Task, error) {
	return Task{}, asyncflow.Errorf(asyncflow.CodeUnavailable, "not built")
}
