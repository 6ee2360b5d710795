package tasks

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// walk goes through the tasks that a filter may find, newest first, in windows. Each window is
// of one range of a roll.
type walk struct {
	t      *config.Type
	family trees.Family
	since  time.Time    // of the filter
	idle   map[int]bool // positions of rolls where nothing ended in time
	oldest int64        // the least number of all
	// the next window has the last candidates before before, from least on
	least, before int64
}

// walkOf returns a walk through the tasks that a filter with criteria may find.
func (s *Tasks) walkOf(
	ctx context.Context, t *config.Type, f Filter, c criteria,
) (*walk, error) {
	w := &walk{t: t, since: f.Since, idle: c.idle,
		before: asyncflow.NewTaskID(t.Name, t.End+1, 0).Number,
		oldest: asyncflow.NewTaskID(t.Name, t.First, 0).Number}
	if f.Before > 0 {
		w.before = min(w.before, f.Before)
	}
	var err error
	w.family, err = trees.FamilyOf(ctx, s.trees, t, f.Parent, f.Latest)
	if err != nil || f.Key == "" {
		return w, err
	}
	id, err := holderOf(ctx, s.core.DB(t.Tenant), t, f.Key)
	if id == 0 {
		w.before = 0 // there is none
	}
	w.oldest = max(w.oldest, id)
	w.before = min(w.before, id+1)
	return w, err
}

// next goes to the next window; false: there is none.
func (w *walk) next() bool {
	for w.before > w.oldest {
		if w.before, w.least = w.family.Before(w.before); w.before <= w.oldest {
			return false
		}
		position := asyncflow.TaskID{Number: w.before - 1}.Position()
		if w.t.Has(position) && !w.idle[position] {
			w.least = max(w.least, rangeOf(w.t, w.before), w.oldest)
			return true
		}
		w.before = rollOf(w.t, w.before) // nothing there, or a gap between two table sets
	}
	return false
}

// pass goes on after a window.
func (w *walk) pass(v view) {
	// Later ones are older still. Without a time, the task is gone that the table search has.
	if !v.created.IsZero() && v.created.Before(w.since.Add(-sinceSlack)) {
		first := rangeOf(w.t, w.before)
		if first == rollOf(w.t, w.before) {
			w.before = 0
			return
		}
		v.last = first
	}
	w.before = v.last
}

// rollOf returns the least number of the roll of a window before a number.
func rollOf(t *config.Type, before int64) int64 {
	return asyncflow.NewTaskID(t.Name, asyncflow.TaskID{Number: before - 1}.Position(), 0).Number
}

// rangeOf returns the least number of the range of a window before a number. Each roll has two
// ranges: tasks that were submitted by SQL have greater numbers than all other tasks.
func rangeOf(t *config.Type, before int64) int64 {
	bySQL := rollOf(t, before) + asyncflow.FirstBySQL
	if before > bySQL {
		return bySQL
	}
	return rollOf(t, before)
}
