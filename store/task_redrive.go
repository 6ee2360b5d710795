package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Redrive starts a failed or cancelled task again and returns it. The task has all attempts
// of its stages again, and its journal goes on. A task that is not final, or has succeeded,
// is CodeConflict. Of two concurrent redrives one wins.
func (s *Store) Redrive(
	ctx context.Context,
	tenant string,
	id asyncflow.TaskID,
	r Redrive,
) (Task, error) {
	t, err := s.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	var ts *tokens
	var dependents *redriving
	err = s.following(ctx, t, func(t *Type) error {
		ts = &tokens{}
		return s.audited(ctx, t.Tenant, func(tx pgx.Tx) error {
			dependents = &redriving{s: s, tx: tx, t: t, now: s.Clock.Now()}
			return dependents.with(ctx, id, r, ts)
		})
	})
	if errors.Is(err, errDry) {
		task, err := s.Task(ctx, tenant, id)
		task.Redriven = dependents.done
		return task, err
	}
	if err != nil {
		return Task{}, wrap(err, "Redrive(%q, %s)", tenant, id)
	}
	dependents.tell()
	s.Wakeups.Announce(t.Key(), ts.earliest)
	s.watched.tell(t.Key(), id.Number)
	s.tellRedriven(t)
	task, err := s.Task(ctx, tenant, id)
	task.Redriven = dependents.done
	return task, err
}

// tellRedriven says that FollowUp may have to redrive children of a type's tasks.
func (s *Store) tellRedriven(t *Type) {
	if t.HasFanOut() {
		s.tellFollowUp(t.Tenant)
	}
}
