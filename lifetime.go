package asyncflow

import (
	"time"
)

// MaxLifetime is the longest duration of a start_by or an end_by. It bounds what a caller may say,
// and shortens nothing.
const MaxLifetime = 10 * 365 * 24 * time.Hour

// Lifetime says by when a task must begin, and by when it must end; zero: it may take any time. It
// is fixed when the task is submitted, changed or redriven.
type Lifetime struct {
	StartBy time.Time `json:"start_by,omitzero"`
	EndBy   time.Time `json:"end_by,omitzero"`
	// What was given as a duration counts anew from a redrive.
	StartWithin Duration `json:"start_within,omitzero"`
	EndWithin   Duration `json:"end_within,omitzero"`
}

// orNil returns nil if there is no deadline.
func (l Lifetime) orNil() *Lifetime {
	if l == (Lifetime{}) {
		return nil
	}
	return &l
}

// Lifetime returns the lifetime of a new task: its own, and what it leaves open as its type says.
// Durations count from when it is due for the first time: its run_at or, without one, its submit.
func (t TaskType) Lifetime(task *NewTask, now time.Time) *Lifetime {
	due := now
	switch {
	case task.Delay.Std() > 0:
		due = now.Add(task.Delay.Std())
	case task.RunAt.After(now):
		due = task.RunAt
	}
	return newLifetime(or(task.StartBy, t.StartBy), or(task.EndBy, t.EndBy), due)
}

func newLifetime(start, end Deadline, due time.Time) *Lifetime {
	if start.IsZero() && end.IsZero() {
		return nil
	}
	var l Lifetime
	l.StartBy, l.StartWithin = start.resolve(due)
	l.EndBy, l.EndWithin = end.resolve(due)
	return l.orNil()
}

func or(a, b Deadline) Deadline {
	if a.IsZero() {
		return b
	}
	return a
}

// Changed returns a task's lifetime with other deadlines, where they are given. Durations count
// from a time.
func (l *Lifetime) Changed(start, end Deadline, from time.Time) *Lifetime {
	var after Lifetime
	if l != nil {
		after = *l
	}
	if !start.IsZero() {
		after.StartBy, after.StartWithin = start.resolve(from)
	}
	if !end.IsZero() {
		after.EndBy, after.EndWithin = end.resolve(from)
	}
	return after.orNil()
}

// Anew returns the deadlines of a task from which its durations count once more: the given ones,
// otherwise its own durations.
func (l *Lifetime) Anew(start, end Deadline) (Deadline, Deadline) {
	if l != nil && start.IsZero() {
		start.after = l.StartWithin
	}
	if l != nil && end.IsZero() {
		end.after = l.EndWithin
	}
	return start, end
}

// Lifetime returns a task's lifetime after the patch; l is its token row with its options. What was
// given as a duration moves with the time of a task that is not begun.
func (p Patch) Lifetime(t TaskType, l Lease, now time.Time) *Lifetime {
	from := now
	if p.RunAt.After(now) {
		from = p.RunAt
	}
	life := l.Options.Lifetime
	start, end := p.StartBy, p.EndBy
	moves := p.RunAt.After(now) || !p.RunAt.IsZero() && l.OrderTime.After(now)
	if moves && l.Attempt == 1 && t.StageIndex(l.Stage) == 0 {
		start, end = life.Anew(start, end)
	}
	return life.Changed(start, end, from)
}

// Lapses reports whether a task that is not begun expires before it is due after the patch. l is
// its token row with its options.
func (p Patch) Lapses(t TaskType, l Lease, now time.Time) bool {
	life := p.Lifetime(t, l, now)
	due := now
	if p.RunAt.After(now) {
		due = p.RunAt
	}
	return life != nil && (over(life.StartBy, due) || over(life.EndBy, due))
}

// CheckLifetime refuses a patch that lets a task run after its lifetime. l is its token row with
// its options.
func (p Patch) CheckLifetime(t TaskType, l Lease, now time.Time) error {
	life := p.Lifetime(t, l, now)
	if life == nil || !p.RunAt.After(now) {
		return nil
	}
	var out problems
	refuse := func(field string, by time.Time) {
		if !by.IsZero() && p.RunAt.After(by) {
			out.add("run_at", "is %s, which is after the %s of the task, %s",
				p.RunAt.UTC().Format(time.RFC3339), field, by.UTC().Format(time.RFC3339))
		}
	}
	if l.Attempt == 1 && t.StageIndex(l.Stage) == 0 {
		refuse("start_by", life.StartBy)
	}
	refuse("end_by", life.EndBy)
	return out.err()
}

// ChangesLifetime reports whether the patch may change when a task expires.
func (p Patch) ChangesLifetime() bool {
	return !p.StartBy.IsZero() || !p.EndBy.IsZero() || !p.RunAt.IsZero()
}

// Renewed returns the lifetime of a task that is redriven: what is given; otherwise a duration
// counts anew, and a fixed time stays. A fixed time that is over is refused: the task would end at
// once.
func (l *Lifetime) Renewed(start, end Deadline, now time.Time) (*Lifetime, error) {
	if l == nil {
		return newLifetime(start, end, now), nil
	}
	start, end = l.Anew(start, end)
	after := l.Changed(start, end, now)
	if after == nil {
		return nil, nil
	}
	if over(after.StartBy, now) {
		return nil, overAlready("start_by", after.StartBy)
	}
	if over(after.EndBy, now) {
		return nil, overAlready("end_by", after.EndBy)
	}
	return after, nil
}

func overAlready(field string, at time.Time) error {
	return Errorf(CodeConflict, "the lifetime of the task is over: its %s was %s. A redrive needs "+
		"another one: give %s, or \"none\"", field, at.UTC().Format(time.RFC3339), field)
}

// over reports whether a deadline is past; zero: there is none.
func over(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// Ended reports whether the task's time to end is over.
func (l *Lifetime) Ended(now time.Time) bool { return l != nil && over(l.EndBy, now) }

// EndsBefore returns the earlier one of a time and the end of the task.
func (l *Lifetime) EndsBefore(at time.Time) time.Time {
	if l == nil || l.EndBy.IsZero() || at.Before(l.EndBy) {
		return at
	}
	return l.EndBy
}

// startsBy returns how long after it is due a task must begin in a stage; zero: any time.
func (t TaskType) startsBy(stage string) Duration {
	if i := t.StageIndex(stage); i >= 0 {
		return t.Stages[i].StartBy
	}
	return Duration{}
}

// TimesStarts reports whether any stage of the type sets a StartBy.
func (t TaskType) TimesStarts() bool {
	for i := range t.Stages {
		if !t.Stages[i].StartBy.IsZero() {
			return true
		}
	}
	return false
}

// HasLifetime reports whether a task of the type may expire. Children of a fan-out don't by
// themselves: they end with their parent.
func (t TaskType) HasLifetime(o *Options) bool {
	return o.Child == nil && (o.Lifetime != nil || t.TimesStarts())
}
