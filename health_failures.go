package asyncflow

import (
	"slices"
	"time"
)

// FailureRun is what one node saw of an endpoint since its last success. Failures count by task, so
// that no task opens a circuit breaker by being tried again and again.
type FailureRun struct {
	since      time.Time // of the first failure
	failed     []int64   // the tasks that failed; FailuresToOpen are enough
	unanswered []int64   // the tasks that found no worker since the endpoint last answered
}

// Add adds an attempt of a task that failed because of the endpoint.
func (r *FailureRun) Add(task TaskID, o Outcome, now time.Time) {
	if len(r.failed) == 0 {
		r.since = now
	}
	r.failed = addTask(r.failed, task)
	if o.workerAnswered() {
		r.unanswered = nil
		return
	}
	if !o.timedOut() {
		r.unanswered = addTask(r.unanswered, task)
	}
}

func addTask(tasks []int64, task TaskID) []int64 {
	if len(tasks) == FailuresToOpen || slices.Contains(tasks, task.Number) {
		return tasks
	}
	// Copies of the run keep their tasks.
	return append(slices.Clip(tasks), task.Number)
}

// Opens reports whether the circuit breaker opens after a failure, which was added.
func (r FailureRun) Opens(o Outcome, now time.Time) bool {
	if o.mayBeTheTasksFault() {
		return len(r.failed) == FailuresToOpen && now.Sub(r.since) >= NoSuccessToOpen
	}
	return len(r.unanswered) == FailuresToOpen
}

// mayBeTheTasksFault reports whether a failed attempt shows that a worker is there, so that another
// task may succeed: it answered, or took the request and broke off the connection or let the time
// run out. The worker is at fault only if it does so to all tasks.
func (o Outcome) mayBeTheTasksFault() bool {
	return o.workerAnswered() || o.timedOut()
}

// workerAnswered reports whether a failed attempt was answered by a worker, or broken off by it.
// Answers that a proxy gives in place of its worker, and 429, don't count.
func (o Outcome) workerAnswered() bool {
	switch o.Status {
	case 0:
		return o.Failure == FailureConnectionLost
	case statusTooManyRequests, statusBadGateway, statusServiceUnavailable, statusGatewayTimeout:
		return false
	}
	return true
}

// timedOut reports whether a request was sent, and its answer didn't come in time, to this node or
// to a proxy.
func (o Outcome) timedOut() bool {
	return o.Status == 0 && o.Failure == FailureTimeout || o.Status == statusGatewayTimeout
}
