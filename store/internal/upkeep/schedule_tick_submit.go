package upkeep

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
)

// submit submits the tasks of all ticks, and notes for which ticks there are tasks.
func (r *round) submit(ctx context.Context, submit catalog.Submit) {
	var tasks []asyncflow.NewTask
	for _, t := range r.schedules {
		if t.err == nil {
			for _, tick := range t.run {
				tasks = append(tasks, r.tickTask(t, tick))
			}
		}
	}
	results := submit(ctx, r.tenant, tasks)
	for _, t := range r.schedules {
		if t.err != nil {
			continue
		}
		for i, result := range results[:len(t.run)] {
			id, err := taskOf(result)
			if err != nil {
				t.err = err
				t.rest = t.run[i]
				break
			}
			t.done = i + 1
			t.LastAt = t.run[i]
			t.LastID = id
			if result.Err == nil && !result.Existing {
				r.chargeTick(t)
			}
		}
		results = results[len(t.run):]
	}
}

// tickTask returns the task of a tick. Its key is kept no longer than the task.
func (r *round) tickTask(t *scheduleTicks, tick time.Time) asyncflow.NewTask {
	task := t.TickTask(tick)
	kind, err := r.store.core.Catalog.Type(r.tenant, t.Type)
	if err != nil {
		return task
	}
	task.KeyWindow = asyncflow.KeyFor(min(task.KeyWindow.Std(), kind.Retention.Std()))
	return task
}

// taskOf returns the task of a tick after its submit, or why it has none. A task that existed
// before may be of an earlier version of the schedule, with another context.
func taskOf(result catalog.Submitted) (asyncflow.TaskID, error) {
	if result.Existing { // it doesn't matter whether it can be read now
		return result.ID, nil
	}
	return result.ID, result.Err
}

// chargeTick counts the task of a tick with its children that are known.
func (r *round) chargeTick(t *scheduleTicks) {
	tenant, ok := r.store.core.Catalog.Tenant(r.tenant)
	kind, err := r.store.core.Catalog.Type(r.tenant, t.Type)
	if ok && err == nil {
		r.store.hot.ChargeSubmits(r.tenant, kind.CountNew(t.Context, tenant.Quotas.MostChildren()))
	}
}
