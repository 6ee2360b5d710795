package upkeep

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/timetable"
)

// plan decides which ticks get tasks now, up to tickTasks and tickBytes. It drops the schedules
// beyond these limits.
func (r *round) plan(ctx context.Context) {
	tasks, bytes := 0, 0
	for i, t := range r.schedules {
		if tasks >= tickTasks || bytes >= tickBytes {
			r.schedules = r.schedules[:i]
			return
		}
		if t.err = t.plan(ctx, r); t.err != nil {
			continue
		}
		most := min(tickTasks-tasks, max(1, (tickBytes-bytes)/max(1, len(t.Context))))
		if len(t.run) > most {
			t.rest = t.run[most]
			t.run = t.run[:most]
		}
		tasks += len(t.run)
		bytes += len(t.run) * len(t.Context)
	}
}

// plan decides which ticks of a schedule get tasks now, by its policies.
func (t *scheduleTicks) plan(ctx context.Context, r *round) (err error) {
	if t.table, err = timetable.New(t.Schedule, t.CreatedAt); err != nil {
		return err
	}
	var missed bool
	t.run, missed = t.table.Due(t.Schedule, t.NextAt, r.now)
	if missed {
		r.store.core.Log.Warn("ticks of a schedule were missed", "tenant", r.tenant, "schedule",
			t.Name, "first", t.NextAt, "catch_up", t.CatchUp, "tasks", len(t.run))
	}
	if len(t.run) == 0 || t.Overlap == asyncflow.OverlapQueue {
		return nil
	}
	live, err := r.store.isLive(ctx, r.tenant, t.LastID)
	switch {
	case err != nil:
		return err
	case t.Overlap == asyncflow.OverlapReplace:
		// The last of several ticks also replaces the ticks before it.
		if n := len(t.run) - 1; n > 0 {
			t.skipped = t.run[:n]
			t.run = t.run[n:]
		}
		if live {
			return r.replace(ctx, t)
		}
	case live:
		t.skipped = t.run
		t.run = nil
	case len(t.run) > 1:
		t.skipped = t.run[1:]
		t.run = t.run[:1]
	}
	return nil
}

// replace cancels the task of the previous tick. It accepts that the task just ended.
func (r *round) replace(ctx context.Context, t *scheduleTicks) error {
	_, err := r.store.tasks.Cancel(ctx, r.tenant, t.LastID,
		"replaced by the next task of schedule "+
			t.Name)
	if code := asyncflow.CodeOf(err); err != nil &&
		(code == asyncflow.CodeConflict || code == asyncflow.CodeNotFound) {
		return nil
	}
	return err
}

// isLive reports whether a task is not final. A task without tables, as they are gone, is final.
func (s *Upkeep) isLive(ctx context.Context, tenant string, id asyncflow.TaskID) (bool, error) {
	if id.Number == 0 {
		return false, nil
	}
	status, err := s.tasks.TaskStatus(ctx, tenant, id)
	// The task may be of a roll that another node just opened.
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		if err := s.core.Catalog.RefreshTenant(ctx, tenant); err != nil {
			return false, err
		}
		status, err = s.tasks.TaskStatus(ctx, tenant, id)
		if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
			return false, nil
		}
	}
	return err == nil && !status.Final(), err
}
