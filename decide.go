package asyncflow

import (
	"fmt"
	"time"
)

// Decide returns what follows from the outcome of a leased attempt. Nothing else decides on the
// next step of a task. now is the database's time. OutcomeAccepted doesn't end an attempt and
// must not be passed.
func Decide(t TaskType, l Lease, o Outcome, now time.Time) Verdict {
	if v, expired := expires(l, o, now); expired {
		return v
	}
	v := decide(t, l, o, now).Bound(l, o)
	if (v.Kind == Return || v.Kind == Retry) && l.Options.Child.VoteKey() != "" && o.uncast() {
		v.OrderTime = l.LeasedAt.Add(-expiredHeadStart)
	}
	if v.Final() == "" && v.Kind != Park && v.Kind != Spawn && !v.OrderTime.After(now.Add(Soon)) &&
		t.LineForClaims(v.Stage, l.Options.Child != nil) {
		v.Reason = WaitClaimer
		v.Claim = l.Options.Claim
	}
	return v
}

// MaxJournal is the length of a task's journal up to which the task may go back in line: each time
// costs a row. The numbers above it, to the end of a smallint, are left for stages and fan-outs.
const MaxJournal = 32_000

// Bound returns v or, if that would put a task with a full journal back in line, the verdict that
// the task fails. Giving a task back costs no attempt, so nothing else would end that.
func (v Verdict) Bound(l Lease, o Outcome) Verdict {
	if l.Seq < MaxJournal || v.Kind != Return && v.Kind != Retry && v.Kind != Park {
		return v
	}
	return Verdict{Kind: Fail, Error: fmt.Sprintf(
		"it was tried or given back %d times; that is the limit. The last time: %s", l.Seq,
		o.Error)}
}

func decide(t TaskType, l Lease, o Outcome, now time.Time) Verdict {
	stage := t.StageIndex(l.Stage)
	switch {
	case o.Kind == OutcomeReleased:
		return Verdict{Kind: Return, Stage: l.Stage, Attempt: l.Attempt, OrderTime: l.OrderTime}
	case o.Kind == OutcomeCancelled:
		return Verdict{Kind: Cancel}
	case o.Kind == OutcomeRejected:
		return t.fails(l, o, "", now)
	case o.Kind == OutcomeSnoozed && stage >= 0 && now.Before(t.snoozeEnd(stage, o)):
		return Verdict{Kind: Retry, Stage: l.Stage, Attempt: l.Attempt,
			OrderTime: earlier(now.Add(o.RetryAfter), t.snoozeEnd(stage, o)), Reason: WaitSnooze}
	case o.Kind == OutcomeFannedOut:
		return Verdict{Kind: Spawn, Stage: l.Stage, Attempt: l.Attempt, OrderTime: l.OrderTime,
			Reason: WaitChildren}
	case o.Kind == OutcomeAwaits:
		return ParkFor(l, WaitSignal)
	case o.Kind == OutcomeTimedOut:
		return t.fails(l, o, "", now)
	case o.Kind == OutcomeDone && o.Join != nil:
		return Verdict{Kind: Spawn, Stage: l.Stage, Attempt: l.Attempt, OrderTime: l.OrderTime,
			Reason: WaitChildren}
	case o.Kind == OutcomeJoined && o.Error != "":
		return t.fails(l, o, "", now)
	case o.passed() && l.Options.Child != nil: // the next stages are its parent's
		return Verdict{Kind: Succeed}
	// the stage was removed, whatever the outcome
	case stage < 0 && t.StageMapping[l.Stage] != "":
		return t.goOnMapped(l, o, now)
	case stage < 0: // it was removed before this task was seen: keep the task
		l.OrderTime = now
		return ParkFor(l, WaitEndpoint)
	case o.passed():
		return t.goOn(stage, l, o, now)
	}
	if t.Stages[stage].Mode == ModeWait { // no attempt was made
		return Verdict{Kind: Return, Stage: l.Stage, Attempt: 1, OrderTime: l.OrderTime}
	}
	var why string
	if o.Kind == OutcomeSnoozed {
		why = fmt.Sprintf("it was snoozed for longer than max_snooze, %s",
			t.Stages[stage].maxSnooze().Text())
		if o.Error != "" {
			why += ". The last time: " + o.Error
		}
		o.RetryAfter = 0
	}
	pause, again := policyOf(t.Stages[stage], l.Options).Next(failureOf(l, o))
	if !again {
		return t.fails(l, o, why, now)
	}
	return Verdict{Kind: Retry, Stage: l.Stage, Attempt: l.Attempt + 1, OrderTime: now.Add(pause),
		Reason: WaitRetry, Error: why}
}

// goOn returns the verdict on a task that passes a stage.
func (t TaskType) goOn(stage int, l Lease, o Outcome, now time.Time) Verdict {
	to, err := t.step(stage, o)
	if err != nil { // the type is another one than at CheckStep
		return Verdict{Kind: Fail, Error: err.Error()}
	}
	if why := t.overSteps(l, o, stage, to); why != "" {
		return Verdict{Kind: Fail, Error: why}
	}
	if to == len(t.Stages) {
		return Verdict{Kind: Succeed}
	}
	return Verdict{Kind: Advance, Stage: t.Stages[to].Name, Attempt: 1,
		OrderTime: EnterOrder(t, to, l.Options, now)}
}

// goOnMapped returns the verdict on a task in a stage that was removed with a mapping during the
// attempt. Its worker's choice counts if the stage to which it's mapped allows it; otherwise the
// verdict's error says why it doesn't.
func (t TaskType) goOnMapped(l Lease, o Outcome, now time.Time) Verdict {
	to := t.StageMapping[l.Stage]
	mapped := t.StageIndex(to)
	v := Verdict{Kind: Advance, Stage: to, Attempt: 1,
		OrderTime: EnterOrder(t, mapped, l.Options, now)}
	if o.Kind != OutcomeDone && o.Kind != OutcomeJoined || !o.chooses() {
		return v
	}
	if _, err := t.step(mapped, o); err != nil {
		v.Error = fmt.Sprintf(
			"stage %q was removed during the attempt, so the task goes on with %q: %s",
			l.Stage, to, err)
		return v
	}
	return t.goOn(mapped, l, o, now)
}

// snoozeEnd returns until when a stage may be snoozed after a snooze.
func (t TaskType) snoozeEnd(stage int, o Outcome) time.Time {
	return o.FirstSent.Add(t.Stages[stage].maxSnooze().Std())
}

// maxSnooze returns MaxSnooze. Stages from before it was known get the default.
func (s Stage) maxSnooze() Duration {
	if s.MaxSnooze.IsZero() {
		return NewDuration(DefaultMaxSnooze)
	}
	return s.MaxSnooze
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// expiredHeadStart is how much earlier than it was claimed a vote that was not cast comes in line
// again: before votes of other tasks, which are not as far.
const expiredHeadStart = 24 * time.Hour

// uncast reports whether a claimer held the vote without casting it.
func (o Outcome) uncast() bool {
	claimer, _ := ClaimerOf(o.Endpoint)
	return (o.Kind == OutcomeLost || o.Kind == OutcomeReleased) && claimer != ""
}

// passed reports whether the stage was done: by the task, its children, or a signal.
func (o Outcome) passed() bool {
	return o.Kind == OutcomeDone || o.Kind == OutcomeJoined || o.Kind == OutcomeSignalled
}

// ParkFor returns the verdict for a leased task that can't be sent: it waits for the reason to
// go away, and no attempt is counted.
func ParkFor(l Lease, reason WaitReason) Verdict {
	return Verdict{Kind: Park, Stage: l.Stage, Attempt: l.Attempt, OrderTime: l.OrderTime,
		Reason: reason, Claim: l.Options.Claim}
}

// MaxAttempts returns the number of attempts that a task with these options gets in a stage; 0 if
// there is no such stage.
func (t TaskType) MaxAttempts(stage string, o Options) int {
	i := t.StageIndex(stage)
	if i < 0 {
		return 0
	}
	return policyOf(t.Stages[i], o).MaxAttempts
}

// policyOf returns the retry policy of a task in a stage: the task's own, if there is one.
func policyOf(s Stage, o Options) RetryPolicy {
	if o.Retry == nil {
		return s.Retry
	}
	return s.Retry.Override(*o.Retry)
}
