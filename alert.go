package asyncflow

import (
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
	// deliveries: how long its oldest task has been due.
	AlertEndpointMissing AlertKind = "endpoint_missing"

	// AlertNoClaimers concerns a stage of mode claim, named "type/stage": for how long its oldest
	// task has been due and nobody has asked for any.
	AlertNoClaimers AlertKind = "no_claimers"

	// AlertDependencyLate concerns a type: how long the oldest of its tasks that wait for other
	// tasks has done so.
	AlertDependencyLate AlertKind = "dependency_late"

	// AlertScheduleFailing concerns a schedule, by its name: for how long the task of its due tick
	// could not be submitted.
	AlertScheduleFailing AlertKind = "schedule_failing"

	// The operator's alerts.

	AlertNodeGone   AlertKind = "node_gone"   // a node has been silent, and was not shut down
	AlertJobOverdue AlertKind = "job_overdue" // a background job should have succeeded by now
	// an old roll of a table set still has tasks to lease
	AlertRollOverdue AlertKind = "roll_overdue"
)

// FailureWindow is the period over which failures are counted.
const FailureWindow = 5 * time.Minute

// DefaultFailureAttempts is the number of attempts in the window below which failure rates are
// ignored.
const DefaultFailureAttempts = 20

// EndpointMissingLimit is how long tasks of a stage without an endpoint are due before
// AlertEndpointMissing fires. A new type has that long to get its endpoints.
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
}

// IsZero reports whether the rules have no limit.
func (r AlertRules) IsZero() bool {
	return r.BacklogAge.IsZero() && r.FailureRate == 0 && r.EndpointFailureRate == 0 &&
		r.NoClaimers.IsZero() && r.DependencyLate.IsZero()
}

const (
	minBacklogAge      = time.Second
	minNoClaimers      = 2 * time.Minute
	maxBacklogAge      = 30 * 24 * time.Hour
	minFailureRate     = 0.01
	maxFailureAttempts = 1_000_000
)

// Validate checks rules; its error names each offending field.
func (r AlertRules) Validate() error {
	var out problems
	if r.IsZero() {
		out.add("rules", "has no limit; it must have backlog_age, failure_rate, "+
			"endpoint_failure_rate, no_claimers or dependency_late")
	}
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

// Enough reports whether n attempts in the window suffice for a failure rate.
func (r AlertRules) Enough(n int64) bool {
	least := r.FailureAttempts
	if least == 0 {
		least = DefaultFailureAttempts
	}
	return n >= int64(least)
}
