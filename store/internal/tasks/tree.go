package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// TreePause says that no further child of a task begins.
type TreePause struct {
	Since  time.Time
	Reason string
}

// PauseTree keeps children of a task from beginning, and returns the task. Those that run are
// finished. A paused one keeps its time and reason; one that doesn't wait for its children is
// CodeConflict.
func (s *Tasks) PauseTree(
	ctx context.Context, tenant string, id asyncflow.TaskID, reason string,
) (Task, error) {
	return s.setTreePause(ctx, tenant, id, true, reason)
}

// ResumeTree ends the pause of a task's children, and returns the task. It changes nothing if they
// aren't paused; a task that doesn't wait for its children is CodeConflict.
func (s *Tasks) ResumeTree(ctx context.Context, tenant string, id asyncflow.TaskID) (Task, error) {
	return s.setTreePause(ctx, tenant, id, false, "")
}

// setTreePause pauses the children of a task or ends their pause, and returns the task.
func (s *Tasks) setTreePause(
	ctx context.Context, tenant string, id asyncflow.TaskID, paused bool, reason string,
) (Task, error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	failed := audit.Do(ctx, s.core, tenant, func(tx pgx.Tx) error {
		return s.writeTreePause(ctx, tx, t, id, paused, reason)
	})
	if errors.Is(failed, postgres.ErrSame) {
		return s.Task(ctx, tenant, id)
	}
	if failed == nil {
		s.core.TellFollowUp(tenant)
		s.core.Watchers.Tell(t.Key(), id.Number)
	}
	task, err := s.Task(ctx, tenant, id)
	if err != nil {
		return task, err
	}
	return task, postgres.Wrap(failed, "setTreePause(%q, %s, %t)", tenant, id, paused)
}

// writeTreePause writes a pause, or its end, and leaves the rest to FollowUp.
func (s *Tasks) writeTreePause(
	ctx context.Context, tx pgx.Tx, t *config.Type, id asyncflow.TaskID, paused bool, reason string,
) error {
	o, err := trees.WaitingFanOut(ctx, tx, t, id)
	if err != nil {
		return err
	}
	if o.Paused() == paused {
		return postgres.ErrSame
	}
	now := s.core.Clock.Now()
	_, err = tx.Exec(ctx, t.SQL(0, `UPDATE {fan_outs}
		SET paused_at = CASE WHEN $4 THEN $5::timestamptz END, pause_reason = nullif($6, '')
		WHERE type = $1 AND id = $2 AND seq = $3`), o.Number, o.ID, o.Seq, paused, now, reason)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	records.QueueOutbox(b, t.Set().Tables, []records.OutboxRow{{Kind: records.OutboxPause,
		Number: o.Number, ID: o.ID, FanOut: o.Seq}}, now)
	return tx.SendBatch(ctx, b).Close()
}

// tellChildren counts the children of a task by their status, if there are any, and says whether
// they are paused.
func (s *Tasks) tellChildren(ctx context.Context, t *config.Type, task *Task) error {
	o, err := records.LatestFanOut(ctx, s.core.DB(t.Tenant), t, task.ID.Number, 0, "")
	if err != nil || o == nil {
		return err
	}
	if o.Paused() && !o.Stopped && !task.Status.Final() {
		task.Pause = TreePause{Since: *o.PausedAt, Reason: o.PauseReason}
	}
	if task.Children, err = trees.ChildrenOf(ctx, s.trees, t, o); err != nil || !t.Spawns() {
		return err
	}
	if task.ChildTypes, err = trees.ChildTypes(ctx, s.trees, t, o); err != nil {
		return err
	}
	task.Tree, err = trees.TreeOf(ctx, s.trees, t, o)
	return err
}

// tellTree fills in the children of a task, the tasks that it started, and what it depends on.
func (s *Tasks) tellTree(ctx context.Context, tenant string, task *Task) error {
	t, err := s.core.Catalog.Type(tenant, task.ID.Type)
	if err != nil {
		return err
	}
	if task.Options.DependsOn > 0 {
		task.Dependencies, err = trees.DependenciesOf(ctx, s.trees, t, task.ID)
		if err != nil {
			return err
		}
	}
	if err := s.tellSpawned(ctx, t, task); err != nil {
		return err
	}
	if !t.Spawns() && (task.Options.Child != nil || !t.HasFanOut() &&
		task.WaitsFor != asyncflow.WaitChildren) {
		return nil
	}
	return s.tellChildren(ctx, t, task)
}
