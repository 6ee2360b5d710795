package asyncflow

import "time"

// Patch changes when a pending or waiting task runs.
type Patch struct {
	// Priority replaces that of the task, in this stage and later ones; empty: unchanged.
	Priority Priority
	RunAt    time.Time // not before this time; one in the past: at once; zero: unchanged
}

// Validate checks a patch: now is the database's time.
func (p Patch) Validate(now time.Time) error {
	var out problems
	p.Priority.check("priority", &out)
	if p.RunAt.After(now.Add(MaxDelay)) {
		out.add("run_at", "is more than %s (a year) ahead", MaxDelay)
	}
	return out.err()
}

// Options returns a task's options after the patch.
func (p Patch) Options(o Options) Options {
	if len(p.Priority) > 0 {
		o.Priority = p.Priority
	}
	return o
}

// Order returns the order_time of a task after the patch. l is the task's token row with its
// options before the patch, and placed is the time at which the row was written. Priority
// doesn't apply to a time that a caller has set, or to the pause before a retry.
func (p Patch) Order(t TaskType, l Lease, placed, now time.Time) time.Time {
	stage := t.StageIndex(l.Stage)
	switch retry := l.Attempt > 1; {
	case p.RunAt.After(now):
		return p.RunAt
	case !p.RunAt.IsZero() && retry:
		return now
	case !p.RunAt.IsZero():
		return now.Add(-headStart(t, stage, p.Options(l.Options)))
	case retry || l.OrderTime.After(placed):
		return l.OrderTime
	}
	return l.OrderTime.Add(headStart(t, stage, l.Options) - headStart(t, stage, p.Options(l.Options)))
}
