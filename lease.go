package asyncflow

import (
	"encoding/json"
	"time"
)

// Lease is the exclusive right to attempt a task's stage until a time. Its Seq is a fencing
// token: it grows with every journal row of the task, and a settlement counts only while the
// lease with that Seq exists.
type Lease struct {
	ID        TaskID
	Seq       int
	Stage     string
	Attempt   int       // of this stage; 1 is the first
	OrderTime time.Time // the task's place in the order, to return it there
	Until     time.Time // by the database's clock
	LeasedAt  time.Time
	DueAt     time.Time // since when the task is due in its stage; zero: it isn't known
	CreatedAt time.Time // of the task; zero: it isn't known
	Endpoint  string    // id of the endpoint to use; "": any of the stage
	Claimer   string    // who asked for the task; "": it is pushed
	Subject   string    // of the token with which the claimer asked; "": none
	Node      string    // that sends it, or handed it out; "": this one, or none
	Worker    string    // the name of the worker that runs it, if it is known; see WorkerName
	Unsent    bool      // sending hasn't begun, and must be written down before it does
	Options   Options
	Context   json.RawMessage // the latest stage output, else the task's own context
	// Checkpoint is what an earlier attempt of the stage left for the next one; nil: nothing.
	Checkpoint json.RawMessage
	Begun      Begun // what is known of its start: see Overdue
	// Past is what its stage asks for besides; nil: nothing, or it isn't read yet.
	Past []PastDocument
}

// Size returns how many bytes of documents a lease carries: its context, its checkpoint, its past,
// and what its siblings share.
func (l *Lease) Size() int {
	size := len(l.Context) + len(l.Checkpoint) + l.PastSize()
	if l.Options.Child != nil {
		size += len(l.Options.Child.Shared)
	}
	return size
}

// PastSize returns how many bytes of its task's past a lease carries.
func (l *Lease) PastSize() (size int) {
	for i := range l.Past {
		size += len(l.Past[i].JSON)
	}
	return size
}

// WithoutDocuments returns the lease without its documents, which would stay in memory while its
// attempt is awaited. Other copies of the lease keep theirs.
func (l Lease) WithoutDocuments() Lease {
	l.Context, l.Checkpoint = nil, nil
	l.Past = nil
	if l.Options.Child != nil {
		child := *l.Options.Child
		child.Shared = nil
		l.Options.Child = &child
	}
	return l
}

// OutcomeKind is the way in which an attempt ended.
type OutcomeKind string

const (
	OutcomeDone     OutcomeKind = "done"     // the worker did the stage
	OutcomeFailed   OutcomeKind = "failed"   // the attempt failed; the policy decides on another
	OutcomeRejected OutcomeKind = "rejected" // the worker asked not to retry
	OutcomeSnoozed  OutcomeKind = "snoozed"  // the worker asked to be asked again later
	// the lease expired: node or worker is gone
	OutcomeLost     OutcomeKind = "lost"
	OutcomeReleased OutcomeKind = "released" // returned unsent: no attempt was made

	OutcomeRedriven OutcomeKind = "redriven" // a failed or cancelled task was redriven
	OutcomeChanged  OutcomeKind = "changed"  // a caller changed its priority, time or context

	OutcomeFannedOut    OutcomeKind = "fanned_out"    // its children are made; it waits for them
	OutcomeJoined       OutcomeKind = "joined"        // its children are over
	OutcomeAwaits       OutcomeKind = "awaits_signal" // it waits for a signal from now on
	OutcomeSignalled    OutcomeKind = "signalled"     // its signal came
	OutcomeTimedOut     OutcomeKind = "timed_out"     // its signal didn't come in time
	OutcomeExpired      OutcomeKind = "expired"       // it was not begun or ended in time
	OutcomeDependencies OutcomeKind = "dependencies"  // what it depends on is over
	// cancelled by a caller in any state, or by the worker, or as the task that it depended on or
	// was a child of
	OutcomeCancelled OutcomeKind = "cancelled"
	OutcomeAccepted  OutcomeKind = "accepted" // 202: the completion follows; never in the journal
)

// Outcome is the result of one attempt on the wire.
type Outcome struct {
	Kind       OutcomeKind
	Output     json.RawMessage // of a done stage; nil: the context passes on unchanged
	Error      string          // why it was not done
	Status     int             // HTTP status of the answer; 0: none came
	Failure    FailureCode     // why none came
	Endpoint   string          // the URL it was sent to
	Worker     string          // the name that the worker gave; see WorkerName
	Duration   time.Duration   // from send to answer
	RetryAfter time.Duration   // asked for by the worker; 0: nothing asked
	// FirstSent is when the stage of a snoozed attempt was delivered for the first time.
	FirstSent time.Time
	// Next is the stage with which a done task goes on, and Finish reports whether it ends, as the
	// worker chose. Without either, the type decides.
	Next   string
	Finish bool
	// Path is the stages that the task passed before, in order, if NeedsPath.
	Path      []string
	FannedOut *FannedOut // of a task that fanned out
	Awaits    *Wait      // of a task that waits for a signal from now on
	// Spawn are the tasks that a done attempt starts.
	Spawn []SpawnedTask
	// Join says how the task waits for them; nil: it doesn't.
	Join *Join
	// AttemptTrace is the id of the trace that recorded the attempt; "": none did. It isn't stored.
	AttemptTrace string
}

// FannedOut is how a task fanned out.
type FannedOut struct {
	FanOut
	Count int // of its children
}

// EndpointFailed reports whether the attempt failed because of the endpoint: there was no
// answer, or one that doesn't answer a delivery. A worker that reports a failure with 2xx, or
// asks not to retry a task, is healthy itself.
func (o Outcome) EndpointFailed() bool { return o.Kind == OutcomeFailed && o.Status/100 != 2 }

// VerdictKind is the next step of a task.
type VerdictKind string

const (
	Advance VerdictKind = "advance" // on to the next stage
	Succeed VerdictKind = "succeed" // final
	Retry   VerdictKind = "retry"   // the same stage again, at OrderTime
	Fail    VerdictKind = "fail"    // final
	Cancel  VerdictKind = "cancel"  // final
	Park    VerdictKind = "park"    // wait until the blocking reason is gone
	Await   VerdictKind = "await"   // answered with 202: the lease remains until the completion
	Return  VerdictKind = "return"  // back to its old place, as if never leased
	Spawn   VerdictKind = "spawn"   // wait for children, which do the stage
)

// WaitReason is what a waiting or pending task waits for.
type WaitReason string

const (
	WaitDelay    WaitReason = "delay"    // its run_at
	WaitRetry    WaitReason = "retry"    // the pause after a failed attempt
	WaitSnooze   WaitReason = "snooze"   // the pause that its worker asked for
	WaitEndpoint WaitReason = "endpoint" // an endpoint for its stage

	WaitFlow      WaitReason = "flow_key"           // the turn of its flow key
	WaitLimit     WaitReason = "endpoint_limit"     // a free slot at an endpoint of its stage
	WaitUnhealthy WaitReason = "endpoint_unhealthy" // an endpoint of its stage to recover

	WaitClaimer WaitReason = "claimer" // a worker to ask for it

	WaitDependencies WaitReason = "dependencies" // the tasks that it depends on
	WaitChildren     WaitReason = "children"     // its children
	WaitSignal       WaitReason = "signal"       // a signal from outside
	// its parent, with paused children, to be resumed
	WaitParent WaitReason = "parent_paused"

	// These are never stored.

	WaitType WaitReason = "type_limit" // capacity within the limits of its type
	// capacity within this quota of its tenant
	WaitConcurrency WaitReason = "quota_concurrency"
	WaitDeliveries  WaitReason = "quota_deliveries_per_second" // capacity within this one
	WaitPaused      WaitReason = "paused"                      // its task type to be resumed
	WaitCapacity    WaitReason = "capacity"                    // a dispatcher with a free slot
)

// ForOthers reports whether a task with this reason waits for an event outside of its type's line:
// nothing but that event moves it on.
func (r WaitReason) ForOthers() bool {
	return r == WaitDependencies || r == WaitChildren || r == WaitParent || r == WaitSignal
}

// Verdict is what follows from an outcome.
type Verdict struct {
	Kind      VerdictKind
	Stage     string     // the task's next stage, unless final
	Attempt   int        // the next attempt of that stage, unless final
	OrderTime time.Time  // its place in the order, unless final
	Reason    WaitReason // what it waits for, if it must wait
	// Error is what the journal says in place of the outcome's error, if the verdict gives a reason
	// of its own.
	Error string
	// Expired reports whether the task fails because its lifetime is over, whatever the outcome.
	Expired bool
	// Claim says who may get the task, if it waits for a claimer; nil: all, or it isn't known.
	Claim *ClaimRules
}

// Final returns the final status that the verdict brings, or "".
func (v Verdict) Final() Status {
	switch v.Kind {
	case Succeed:
		return StatusSucceeded
	case Fail:
		return StatusFailed
	case Cancel:
		return StatusCancelled
	}
	return ""
}

// Status returns the status of a task after the verdict. now is the database's time.
func (v Verdict) Status(now time.Time) Status {
	switch {
	case v.Final() != "":
		return v.Final()
	case v.Kind == Park || v.Kind == Spawn || v.Reason == WaitClaimer ||
		v.OrderTime.After(now.Add(Soon)):
		return StatusWaiting
	}
	return StatusPending
}

// Settlement is a lease with its outcome and its verdict, which are written in one group
// commit.
type Settlement struct {
	Lease   Lease
	Outcome Outcome
	Verdict Verdict
}

// Snoozes reports whether the attempt was put off without being counted.
func (s *Settlement) Snoozes() bool {
	switch s.Verdict.Kind {
	case Retry:
		return s.Verdict.Attempt == s.Lease.Attempt
	case Park, Advance: // its stage was removed meanwhile, unless it goes on as failed
		return s.Outcome.Kind == OutcomeSnoozed && s.Verdict.Error == ""
	}
	return false
}

// Delivery is one attempt, ready to send.
type Delivery struct {
	Tenant      string
	Lease       Lease
	Endpoint    *Endpoint
	TypeVersion int // of the task type; 0: the delivery belongs to none
	MaxAttempts int
	At          time.Time     // now, by the database's clock
	Timeout     time.Duration // for the whole exchange
	Deadline    time.Time     // when the attempt is given up if the answer was 202
	Latest      time.Time     // of a claim: how far heartbeats may move its deadline
	Test        bool          // it belongs to no task: no report on it is accepted
	Links       []WaitLinks   // to decide about waits that may come next

	// Traceparent is the W3C traceparent of the attempt, and RequestTrace that of the request, if
	// several deliveries are in it; "": they are in no trace.
	Traceparent, RequestTrace string
}
