package asyncflow

import "time"

// Patch changes when a task runs that is pending or waiting.
type Patch struct {
	// Priority takes the place of the task's own, in this stage and those to come;
	// empty: as it is.
	Priority Priority
	RunAt    time.Time // not before this time; one that is past: at once; zero: as it is
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

// Order returns the order_time of a task after the patch. l is the task's token row
// with its options before the patch, and placed is when the row got there. A time that
// was set for it, by a caller or as the pause before a retry, is no matter of
// priority.
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
