package asyncflow

import (
	"slices"
	"strings"
	"time"
)

// Expiry is when a task expires unless something happens before. It is about its start if Start.
type Expiry struct {
	At    time.Time // zero: never
	Start bool
}

// Over reports whether that time is over.
func (e Expiry) Over(now time.Time) bool { return over(e.At, now) }

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

// End returns when a begun task expires.
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
		if l.Seq == 1 { // there is no journal of it
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

// notBegun are the outcomes that show no attempt.
var notBegun = []OutcomeKind{OutcomeReleased, OutcomeRedriven, OutcomeChanged, OutcomeDependencies,
	OutcomeCancelled, OutcomeExpired}

// BeganBy reports whether an outcome shows that an attempt of its task had begun.
func (k OutcomeKind) BeganBy() bool { return !slices.Contains(notBegun, k) }

// NotBegun are the outcomes that show no attempt, as a list in SQL.
var NotBegun = func() string {
	quoted := make([]string, len(notBegun))
	for i, k := range notBegun {
		quoted[i] = "'" + string(k) + "'"
	}
	return strings.Join(quoted, ", ")
}()
