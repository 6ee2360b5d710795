package asyncflow

import (
	"fmt"
	"strings"
	"time"
)

// MaxLifetime is the longest duration of a start_by or an end_by. It bounds what a caller may say,
// and shortens nothing.
const MaxLifetime = 10 * 365 * 24 * time.Hour

// Deadline is a time, or a duration that counts from when a task is due for the first time. Its
// text is RFC 3339, a duration, or NoDeadline. The zero value leaves it to whatever else says one.
type Deadline struct {
	at    time.Time
	after Duration
	none  bool
}

// NoDeadline is the text of a Deadline that says there is none, whatever the type says.
const NoDeadline = "none"

// DeadlineAt returns a fixed time.
func DeadlineAt(at time.Time) Deadline { return Deadline{at: at} }

// DeadlineAfter returns a duration.
func DeadlineAfter(after time.Duration) Deadline { return Deadline{after: NewDuration(after)} }

// IsZero reports whether nothing is said.
func (d Deadline) IsZero() bool { return d == Deadline{} }

// Text returns the deadline as it is written; "": nothing is said.
func (d Deadline) Text() string {
	switch {
	case d.none:
		return NoDeadline
	case !d.after.IsZero():
		return d.after.Text()
	case !d.at.IsZero():
		return d.at.UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// MarshalText returns d.Text.
func (d Deadline) MarshalText() ([]byte, error) { return []byte(d.Text()), nil }

// UnmarshalText reads a time, a duration or NoDeadline.
func (d *Deadline) UnmarshalText(b []byte) error {
	*d = Deadline{}
	text := string(b)
	if text == NoDeadline {
		d.none = true
		return nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		d.at = at.UTC().Truncate(time.Microsecond) // as Postgres keeps it
		return nil
	}
	if err := d.after.UnmarshalText(b); err != nil {
		return fmt.Errorf(`must be a time such as "2026-01-31T12:00:00Z", a duration such as `+
			`"30m", or "none", not %q`, excerpt(b))
	}
	if d.after.IsZero() { // it would say nothing
		return fmt.Errorf(`is 0s; it must be longer, or "none"`)
	}
	return nil
}

// From returns the deadline with a duration that counts from a time.
func (d Deadline) From(begin time.Time) Deadline {
	if !d.after.IsZero() {
		d.at = begin.Add(d.after.Std())
	}
	return d
}

// resolve returns the deadline of a task that is due at a time, and how long after it that is if
// it is a duration.
func (d Deadline) resolve(due time.Time) (at time.Time, within Duration) {
	switch {
	case d.none:
		return time.Time{}, Duration{}
	case d.at.IsZero() && !d.after.IsZero():
		return due.Add(d.after.Std()).Truncate(time.Microsecond), d.after
	}
	return d.at, d.after
}

func (d Deadline) check(field string, out *problems) {
	switch after := d.after.Std(); {
	case after < 0 || after > MaxLifetime:
		out.add(field, "is %s; it must be more than 0s and up to %s (10 years)", d.after,
			MaxLifetime)
	case d.after.IsZero() && !d.at.IsZero() && (d.at.Year() < 1970 || d.at.Year() > 2999):
		out.add(field, "is in the year %d; it must be in 1970 to 2999", d.at.Year())
	}
}

// CheckDeadlines checks a start_by and an end_by.
func CheckDeadlines(start, end Deadline) error {
	var out problems
	start.check("start_by", &out)
	end.check("end_by", &out)
	return out.err()
}

// Lifetime says by when a task must have begun, and by when it must have ended; zero: it may take
// any time. It is fixed when the task is submitted, changed or redriven.
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

// Lifetime returns a task's lifetime after the patch; l is its token row with its options. What was
// given as a duration moves with the time of a task that has not begun.
func (p Patch) Lifetime(t TaskType, l Lease, now time.Time) *Lifetime {
	from := now
	if p.RunAt.After(now) {
		from = p.RunAt
	}
	life := l.Options.Lifetime
	start, end := p.StartBy, p.EndBy
	moves := p.RunAt.After(now) || !p.RunAt.IsZero() && l.OrderTime.After(now)
	if life != nil && moves && l.Attempt == 1 && t.StageIndex(l.Stage) == 0 {
		if start.IsZero() {
			start.after = life.StartWithin
		}
		if end.IsZero() {
			end.after = life.EndWithin
		}
	}
	return life.Changed(start, end, from)
}

// CheckLifetime refuses a patch that has a task run after it has expired. l is its token row with
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
	if start.IsZero() && !l.StartWithin.IsZero() {
		start.after = l.StartWithin
	}
	if end.IsZero() && !l.EndWithin.IsZero() {
		end.after = l.EndWithin
	}
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

// over reports whether a deadline has come; zero: there is none.
func over(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// Ended reports whether the task must have ended by now.
func (l *Lifetime) Ended(now time.Time) bool { return l != nil && over(l.EndBy, now) }

// EndsBefore returns the earlier one of a time and the end of the task.
func (l *Lifetime) EndsBefore(at time.Time) time.Time {
	if l == nil || l.EndBy.IsZero() || at.Before(l.EndBy) {
		return at
	}
	return l.EndBy
}

// startsBy returns how long after it is due a task must have begun in a stage; zero: any time.
func (t TaskType) startsBy(stage string) Duration {
	if i := t.StageIndex(stage); i >= 0 {
		return t.Stages[i].StartBy
	}
	return Duration{}
}

// TimesStarts reports whether any stage of the type has a StartBy.
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

// Expiry is when a task expires unless something happens before. It is about its start if Start.
type Expiry struct {
	At    time.Time // zero: never
	Start bool
}

// Expiry returns when a task expires that waits for its first attempt in a stage since it was due
// there. first reports whether it waits for its very first attempt.
func (t TaskType) Expiry(o *Options, stage string, due time.Time, first bool) (e Expiry) {
	e = o.Lifetime.End()
	if o.Lifetime != nil && first {
		e = e.sooner(o.Lifetime.StartBy)
	}
	if within := t.startsBy(stage); !within.IsZero() {
		e = e.sooner(due.Add(within.Std()))
	}
	return e
}

// End returns when a task expires that has begun.
func (l *Lifetime) End() Expiry {
	if l == nil {
		return Expiry{}
	}
	return Expiry{At: l.EndBy}
}

// sooner returns the expiry of a task that must begin by a time; zero: it may begin at any time.
func (e Expiry) sooner(start time.Time) Expiry {
	if start.IsZero() || !e.At.IsZero() && !start.Before(e.At) {
		return e
	}
	return Expiry{At: start, Start: true}
}

// Begun says for which times to begin an attempt of a task had begun in time.
type Begun uint8

const (
	Certain      Begun = 0         // nothing need be asked
	BegunAtAll   Begun = 1 << iota // since its submit or its last redrive
	BegunInStage                   // in this visit of its stage
)

// Overdue returns why a leased task must not be sent; "": it may be. Unless ask is Certain, the
// task may be sent if its journal says that it had Begun so.
func (t TaskType) Overdue(l *Lease, now time.Time) (why string, ask Begun) {
	life := l.Options.Lifetime
	if life.Ended(now) {
		return endedLate(life), Certain
	}
	if !t.HasLifetime(&l.Options) || l.Attempt > 1 {
		return "", Certain
	}
	unless := func(b Begun) Begun {
		if l.Seq == 1 { // it has no journal
			return Certain
		}
		return b
	}
	if life != nil && over(life.StartBy, now) && l.Begun&BegunAtAll == 0 {
		return startedLate(life.StartBy), unless(BegunAtAll)
	}
	within := t.startsBy(l.Stage)
	if within.IsZero() || l.DueAt.IsZero() || l.Begun&BegunInStage != 0 {
		return "", Certain
	}
	if by := l.DueAt.Add(within.Std()); over(by, now) {
		return startedLate(by), unless(BegunInStage)
	}
	return "", Certain
}

func startedLate(at time.Time) string {
	return string(CodeExpired) + ": it had not begun by " + at.UTC().Format(time.RFC3339Nano)
}

func endedLate(l *Lifetime) string {
	return string(CodeExpired) + ": it had not ended by " + l.EndBy.UTC().Format(time.RFC3339Nano)
}

// ExpiredOutcome returns the outcome of a task that expires for a reason of Overdue, or at its end.
func ExpiredOutcome(why string) Outcome { return Outcome{Kind: OutcomeExpired, Error: why} }

// LateOutcome returns the outcome of a task that expires at a time.
func LateOutcome(e Expiry) Outcome {
	if e.Start {
		return ExpiredOutcome(startedLate(e.At))
	}
	return ExpiredOutcome(endedLate(&Lifetime{EndBy: e.At}))
}

// expires returns the verdict on a task that expires, whatever its outcome, and reports whether it
// does. A cancel still counts.
func expires(l Lease, o Outcome, now time.Time) (v Verdict, expired bool) {
	switch {
	case o.Kind == OutcomeExpired:
		return Verdict{Kind: Fail, Expired: true, Error: o.Error}, true
	case o.Kind != OutcomeCancelled && l.Options.Lifetime.Ended(now):
		return Verdict{Kind: Fail, Expired: true, Error: endedLate(l.Options.Lifetime)}, true
	}
	return v, false
}

// Counted returns the outcome as it is written: that of a task which expired says only that.
func (s *Settlement) Counted() Outcome {
	if !s.Verdict.Expired || s.Outcome.Kind == OutcomeExpired {
		return s.Outcome
	}
	o := s.Outcome
	return Outcome{Kind: OutcomeExpired, Error: s.Verdict.Error, Endpoint: o.Endpoint,
		Worker: o.Worker, Duration: o.Duration}
}

// BeganBy reports whether an outcome shows that an attempt of its task had begun.
func (k OutcomeKind) BeganBy() bool {
	switch k {
	case OutcomeReleased, OutcomeRedriven, OutcomeChanged, OutcomeDependencies, OutcomeCancelled,
		OutcomeExpired:
		return false
	}
	return true
}

// NotBegun are the outcomes that show no attempt, as a list in SQL.
var NotBegun = func() string {
	all := []OutcomeKind{OutcomeReleased, OutcomeRedriven, OutcomeChanged, OutcomeDependencies,
		OutcomeCancelled, OutcomeExpired}
	quoted := make([]string, len(all))
	for i, k := range all {
		quoted[i] = "'" + string(k) + "'"
	}
	return strings.Join(quoted, ", ")
}()
