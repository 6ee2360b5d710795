package asyncflow

import (
	"cmp"
	"time"
)

// Alerts are sent as tasks of a built-in task type with one stage, so they are signed, retried
// and listed like any task. The operator's alerts are tasks of a separate tenant.
const (
	AlertType      = "asyncflow-alerts"
	AlertStage     = "send"
	OperatorTenant = "asyncflow"
)

// AlertKind says what an alert is about.
type AlertKind string

const (
	// of a type: how long its oldest due task has been waiting to start
	AlertBacklogAge AlertKind = "backlog_age"
	// of a type: the share of unsuccessful attempts
	AlertFailureRate AlertKind = "failure_rate"

	// AlertEndpointFailing concerns an endpoint, named "type/stage/id": the share of its attempts
	// that failed because of it (Outcome.EndpointFailed).
	AlertEndpointFailing AlertKind = "endpoint_failing"

	// AlertEndpointMissing concerns a stage, named "type/stage", without an endpoint that gets
	// deliveries: for how long its oldest task is due.
	AlertEndpointMissing AlertKind = "endpoint_missing"

	// AlertNoClaimers concerns a stage of mode claim, named "type/stage": for how long its oldest
	// task is due while nobody asks for any.
	AlertNoClaimers AlertKind = "no_claimers"

	// AlertDependencyLate concerns a type: how long the oldest of its tasks that wait for other
	// tasks is waiting.
	AlertDependencyLate AlertKind = "dependency_late"

	// AlertScheduleFailing concerns a schedule, by its name: for how long the task of its due tick
	// could not be submitted.
	AlertScheduleFailing AlertKind = "schedule_failing"

	// AlertFailedForGood concerns a type, or all types together (AllTypes): how many tasks failed
	// for good within AlertRules.FailedWithin, whatever the share.
	AlertFailedForGood AlertKind = "failed_for_good"

	// AlertBlockedKey concerns a type: for how long the longest-standing flow key of it stands
	// still, because of a failed task or of one that waits, while tasks wait for their turn.
	AlertBlockedKey AlertKind = "blocked_key"

	// AlertLongWait concerns a type: how long 99 % of the tasks that were started within
	// AlertRules.LongWaitWithin had been due at most.
	AlertLongWait AlertKind = "long_wait"

	// AlertWillExpire concerns a type: how many of its tasks that are not running end with their
	// lifetime within AlertRules.WillExpireWithin.
	AlertWillExpire AlertKind = "will_expire"

	// The operator's alerts.

	AlertNodeGone   AlertKind = "node_gone"   // a node is silent, and was not shut down
	AlertJobOverdue AlertKind = "job_overdue" // a background job is late with its next success
	// an old roll of a table set still has tasks to lease
	AlertRollOverdue AlertKind = "roll_overdue"
)

// AllTypes is the subject of an alert about all task types together.
const AllTypes = "*"

// FailureWindow is the period over which failures are counted.
const FailureWindow = 5 * time.Minute

// DefaultFailureAttempts is the number of attempts in the window below which failure rates are
// ignored.
const DefaultFailureAttempts = 20

// EndpointMissingLimit is how long tasks of a stage without an endpoint are due before
// AlertEndpointMissing fires. A new type gets that long for its endpoints.
const EndpointMissingLimit = time.Minute

// ScheduleFailingLimit is how long a schedule can't submit its task before AlertScheduleFailing
// fires.
const ScheduleFailingLimit = time.Minute

// Limits of the operator's alerts.
const (
	NodeGoneLimit    = time.Minute
	JobOverdueLimit  = 10 * time.Minute
	RollOverdueLimit = 10 * time.Minute
)

// AlertRules set the limits at which a tenant's alerts fire; zero: never. They apply to each
// task type or endpoint separately.
type AlertRules struct {
	BacklogAge          Duration `json:"backlog_age,omitzero"`
	FailureRate         float64  `json:"failure_rate,omitzero"`          // over FailureWindow
	EndpointFailureRate float64  `json:"endpoint_failure_rate,omitzero"` // over FailureWindow
	// FailureAttempts is the least number of attempts in the window; 0: DefaultFailureAttempts.
	FailureAttempts int `json:"failure_attempts,omitzero"`
	// NoClaimers is at least minNoClaimers: a call for tasks waits as long, and is written down
	// later.
	NoClaimers     Duration `json:"no_claimers,omitzero"`
	DependencyLate Duration `json:"dependency_late,omitzero"`
	// FailedForGood is a number of tasks of a type that failed within FailedWithin, and
	// FailedInTotal one of all types together.
	FailedForGood int      `json:"failed_for_good,omitzero"`
	FailedInTotal int      `json:"failed_in_total,omitzero"`
	FailedWithin  Duration `json:"failed_within,omitzero"` // zero: DefaultFailedWithin
	BlockedKey    Duration `json:"blocked_key,omitzero"`
	// LongWait bounds how long 99 % of the tasks started within LongWaitWithin were due.
	LongWait       Duration `json:"long_wait,omitzero"`
	LongWaitWithin Duration `json:"long_wait_within,omitzero"` // zero: FailureWindow
	// WillExpire is a number of tasks of a type that expire within WillExpireWithin unless they
	// are done, and are not running.
	WillExpire       int      `json:"will_expire,omitzero"`
	WillExpireWithin Duration `json:"will_expire_within,omitzero"` // zero: FailureWindow
}

// DefaultFailedWithin is the period over which failed tasks are counted unless rules name another.
const DefaultFailedWithin = time.Hour

// FailedPeriod returns the period over which failed tasks are counted.
func (r AlertRules) FailedPeriod() time.Duration {
	return cmp.Or(r.FailedWithin.Std(), DefaultFailedWithin)
}

// LongWaitPeriod returns the period of the starts that are compared.
func (r AlertRules) LongWaitPeriod() time.Duration {
	return cmp.Or(r.LongWaitWithin.Std(), FailureWindow)
}

// WillExpirePeriod returns how long before the end of their lifetimes tasks are counted.
func (r AlertRules) WillExpirePeriod() time.Duration {
	return cmp.Or(r.WillExpireWithin.Std(), FailureWindow)
}

// IsZero reports whether the rules set no limit.
func (r AlertRules) IsZero() bool {
	return r.BacklogAge.IsZero() && r.FailureRate == 0 && r.EndpointFailureRate == 0 &&
		r.NoClaimers.IsZero() && r.DependencyLate.IsZero() && r.WillExpire == 0 &&
		!r.hasLaterKinds()
}

// hasLaterKinds reports whether a rule is set that nodes may not know: see CapAlerts.
func (r AlertRules) hasLaterKinds() bool {
	return r.FailedForGood != 0 || r.FailedInTotal != 0 || !r.BlockedKey.IsZero() ||
		!r.LongWait.IsZero()
}

const (
	minBacklogAge      = time.Second
	minNoClaimers      = 2 * time.Minute
	maxBacklogAge      = 30 * 24 * time.Hour
	minFailureRate     = 0.01
	maxFailureAttempts = 1_000_000
	maxFailedTasks     = 1_000_000
	minAlertWindow     = time.Minute // counts are kept by minute
	maxFailedWithin    = 24 * time.Hour
	minLongWait        = 10 * time.Millisecond
	maxLongWaitWithin  = time.Hour // then the times are forgotten
)

// Validate checks rules; its error names each offending field.
func (r AlertRules) Validate() error {
	var out problems
	if r.IsZero() {
		out.add("rules", "has no limit; it must have backlog_age, failure_rate, "+
			"endpoint_failure_rate, no_claimers, dependency_late, failed_for_good, "+
			"failed_in_total, blocked_key, long_wait or will_expire")
	}
	r.checkLaterKinds(&out)
	if !r.DependencyLate.IsZero() {
		checkDuration(&out, "rules.dependency_late", r.DependencyLate, minBacklogAge, maxBacklogAge)
	}
	if !r.NoClaimers.IsZero() {
		checkDuration(&out, "rules.no_claimers", r.NoClaimers, minNoClaimers, maxBacklogAge)
	}
	if !r.BacklogAge.IsZero() {
		checkDuration(&out, "rules.backlog_age", r.BacklogAge, minBacklogAge, maxBacklogAge)
	}
	checkRate := func(field string, rate float64) {
		if rate != 0 && (rate < minFailureRate || rate > 1) {
			out.add(field, "is %g; it must be %g to 1", rate, minFailureRate)
		}
	}
	checkRate("rules.failure_rate", r.FailureRate)
	checkRate("rules.endpoint_failure_rate", r.EndpointFailureRate)
	if r.FailureAttempts < 0 || r.FailureAttempts > maxFailureAttempts {
		out.add("rules.failure_attempts", "is %d; it must be 1 to %d", r.FailureAttempts,
			maxFailureAttempts)
	}
	return out.err()
}

// checkLaterKinds checks the rules on failed tasks, flow keys and waits.
func (r AlertRules) checkLaterKinds(out *problems) {
	checkNumber := func(field string, n int) {
		if n < 0 || n > maxFailedTasks {
			out.add(field, "is %d; it must be 1 to %d", n, maxFailedTasks)
		}
	}
	checkNumber("rules.failed_for_good", r.FailedForGood)
	checkNumber("rules.failed_in_total", r.FailedInTotal)
	if !r.FailedWithin.IsZero() {
		checkDuration(out, "rules.failed_within", r.FailedWithin, minAlertWindow, maxFailedWithin)
		if r.FailedForGood == 0 && r.FailedInTotal == 0 {
			out.add("rules.failed_within", "needs failed_for_good or failed_in_total")
		}
	}
	if !r.BlockedKey.IsZero() {
		checkDuration(out, "rules.blocked_key", r.BlockedKey, minBacklogAge, maxBacklogAge)
	}
	if !r.LongWait.IsZero() {
		checkDuration(out, "rules.long_wait", r.LongWait, minLongWait, maxBacklogAge)
	}
	if !r.LongWaitWithin.IsZero() {
		checkDuration(out, "rules.long_wait_within", r.LongWaitWithin, minAlertWindow,
			maxLongWaitWithin)
		if r.LongWait.IsZero() {
			out.add("rules.long_wait_within", "needs long_wait")
		}
	}
	checkNumber("rules.will_expire", r.WillExpire)
	if !r.WillExpireWithin.IsZero() {
		checkDuration(out, "rules.will_expire_within", r.WillExpireWithin, minAlertWindow,
			maxFailedWithin)
		if r.WillExpire == 0 {
			out.add("rules.will_expire_within", "needs will_expire")
		}
	}
}

// Enough reports whether n attempts in the window suffice for a failure rate.
func (r AlertRules) Enough(n int64) bool {
	least := r.FailureAttempts
	if least == 0 {
		least = DefaultFailureAttempts
	}
	return n >= int64(least)
}
