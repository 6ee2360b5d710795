package tasks

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Redrive starts a failed or cancelled task again and returns it. The task gets all attempts of its
// stages again, and its journal goes on. A task that is not final, or succeeded, is CodeConflict.
// Of two concurrent redrives one wins.
func (s *Tasks) Redrive(
	ctx context.Context, tenant string, id asyncflow.TaskID, r trees.Redrive,
) (Task, error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	var ts *records.Tokens
	var dependents *trees.Redriving
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		ts = &records.Tokens{}
		return audit.Do(ctx, s.core, t.Tenant, func(tx pgx.Tx) error {
			dependents = &trees.Redriving{Trees: s.trees, Tx: tx, Type: t, Now: s.core.Clock.Now()}
			return dependents.With(ctx, id, r, ts)
		})
	})
	if errors.Is(err, postgres.ErrDry) {
		task, err := s.Task(ctx, tenant, id)
		task.Redriven = dependents.Done
		return task, err
	}
	if err != nil {
		return Task{}, postgres.Wrap(err, "Redrive(%q, %s)", tenant, id)
	}
	dependents.Tell()
	s.core.Wakeups.Announce(t.Key(), ts.Earliest)
	s.core.Watchers.Tell(t.Key(), id.Number)
	s.core.TellFollowUp(t.Tenant) // perhaps it must redrive children
	task, err := s.Task(ctx, tenant, id)
	task.Redriven = dependents.Done
	return task, err
}
