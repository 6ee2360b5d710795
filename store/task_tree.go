package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// TreePause says that no further child of a task begins.
type TreePause struct {
	Since  time.Time
	Reason string
}

// PauseTree keeps children of a task from beginning, and returns the task. Those that run are
// finished. A paused one keeps its time and reason; one that doesn't wait for its children is
// CodeConflict.
func (s *Store) PauseTree(
	ctx context.Context, tenant string, id asyncflow.TaskID, reason string,
) (Task, error) {
	return s.setTreePause(ctx, tenant, id, true, reason)
}

// ResumeTree ends the pause of a task's children, and returns the task. It changes nothing if they
// aren't paused; a task that doesn't wait for its children is CodeConflict.
func (s *Store) ResumeTree(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (Task, error) {
	return s.setTreePause(ctx, tenant, id, false, "")
}

func (s *Store) setTreePause(
	ctx context.Context, tenant string, id asyncflow.TaskID, paused bool, reason string,
) (Task, error) {
	t, err := s.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	err = s.audited(ctx, tenant, func(tx pgx.Tx) error {
		o, err := waitingFanOut(ctx, tx, t, id)
		if err != nil {
			return err
		}
		if o.paused() == paused {
			return errSame
		}
		now := s.Clock.Now()
		_, err = tx.Exec(ctx, t.at(0, `UPDATE {fan_outs}
			SET paused_at = CASE WHEN $4 THEN $5::timestamptz END, pause_reason = nullif($6, '')
			WHERE type = $1 AND id = $2 AND seq = $3`), o.number, o.id, o.seq, paused, now, reason)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		queueOutbox(b, t.set.tables, []outboxRow{{kind: outboxPause, number: o.number, id: o.id,
			fanOut: o.seq}}, now)
		return tx.SendBatch(ctx, b).Close()
	})
	if err == nil {
		s.tellFollowUp(tenant)
		s.watched.tell(t.Key(), id.Number)
	}
	task, missing := s.Task(ctx, tenant, id)
	if missing == nil && !errors.Is(err, errSame) {
		return task, wrap(err, "setTreePause(%q, %s, %t)", tenant, id, paused)
	}
	return task, missing
}

// tellChildren counts the children of a task by their status, if it has any, and says whether they
// are paused.
func (s *Store) tellChildren(ctx context.Context, t *Type, task *Task) error {
	o, err := latestFanOut(ctx, s.of(t.Tenant), t, task.ID.Number, 0, "")
	if err != nil || o == nil {
		return err
	}
	if o.paused() && !o.stopped && !task.Status.Final() {
		task.Pause = TreePause{Since: *o.pausedAt, Reason: o.pauseReason}
	}
	task.Children, err = s.childrenOf(ctx, t, o)
	return err
}

// tellTree fills in the children of a task, and what it depends on.
func (s *Store) tellTree(ctx context.Context, tenant string, task *Task) error {
	t, err := s.Catalog.Type(tenant, task.ID.Type)
	if err == nil && task.Options.DependsOn > 0 {
		task.Dependencies, err = s.dependenciesOf(ctx, t, task.ID)
	}
	if err != nil || task.Options.Child != nil ||
		!t.HasFanOut() && task.WaitsFor != asyncflow.WaitChildren {
		return err
	}
	return s.tellChildren(ctx, t, task)
}
