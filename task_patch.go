package asyncflow

import (
	"encoding/json"
	"strings"
	"time"
)

// Patch changes when a pending or waiting task runs, or what its stage gets.
type Patch struct {
	// Priority replaces that of the task, in this stage and later ones; empty: unchanged.
	Priority Priority
	RunAt    time.Time // not before this time; one in the past: at once; zero: unchanged
	// Context is what its stage gets from the next attempt on; nil: unchanged.
	Context json.RawMessage
	// Retry replaces its own retry policy, in this stage and later ones; one that sets nothing:
	// that of its type; nil: unchanged.
	Retry *RetryPolicy
	// StartBy and EndBy are another lifetime; zero: unchanged. Durations count from the change or
	// from RunAt.
	StartBy, EndBy Deadline
	// Claim replaces its rules of who may claim it; empty ones: anyone may; nil: unchanged.
	Claim *ClaimRules
	By    string // who changes it, for its journal; "": unknown
}

// changedBy marks, in the place of the endpoint, who made a change in a journal.
const changedBy = "by:"

// Endpoint returns how the journal says who made the change.
func (p Patch) Endpoint() string {
	if p.By == "" {
		return ""
	}
	return changedBy + p.By
}

// ChangerOf returns who made a change, by its endpoint in the journal; "": unknown, or no change.
func ChangerOf(endpoint string) string {
	by, changed := strings.CutPrefix(endpoint, changedBy)
	if !changed {
		return ""
	}
	return by
}

// Validate checks a patch: now is the database's time.
func (p Patch) Validate(now time.Time) error {
	var out problems
	p.Priority.check("priority", &out)
	if p.RunAt.After(now.Add(MaxDelay)) {
		out.add("run_at", "is more than %s (a year) ahead", MaxDelay)
	}
	if p.Retry != nil {
		p.Retry.check("retry", &out)
	}
	p.Claim.checkChange(&out)
	p.StartBy.check("start_by", &out)
	p.EndBy.check("end_by", &out)
	return out.err()
}

// Options returns a task's options after the patch.
func (p Patch) Options(o Options) Options {
	if len(p.Priority) > 0 {
		o.Priority = p.Priority
	}
	switch {
	case p.Retry == nil:
	case p.Retry.IsZero():
		o.Retry = nil
	default:
		o.Retry = p.Retry
	}
	o.Claim = o.Claim.Changed(p.Claim)
	return o
}

// Order returns the order_time of a task after the patch. l is the task's token row with its
// options before the patch, and placed is the time at which the row was written. Priority
// doesn't apply to a time that a caller has set, or to the pause before a retry. A task that is due
// keeps its place when it is to run at once.
func (p Patch) Order(t TaskType, l Lease, placed, now time.Time) time.Time {
	stage := t.StageIndex(l.Stage)
	early := !p.RunAt.IsZero() && l.OrderTime.After(now)
	switch retry := l.Attempt > 1; {
	case p.RunAt.After(now):
		return p.RunAt
	case early && retry:
		return now
	case early:
		return now.Add(-headStart(t, stage, p.Options(l.Options)))
	case retry || l.OrderTime.After(placed):
		return l.OrderTime
	}
	return l.OrderTime.Add(headStart(t, stage, l.Options) -
		headStart(t, stage, p.Options(l.Options)))
}
