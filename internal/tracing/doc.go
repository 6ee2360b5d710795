// Package tracing records what a node does as spans of OpenTelemetry: calls of its API, and the
// attempts of tasks.
//
// No span is ever open. What may become one keeps the time at which it began, and ids that are
// chosen then. When it is over, the span is made and ended in one step. Whatever ends a call or an
// attempt early, nothing is left behind; a span of a process that is killed doesn't exist.
//
// The ids of an attempt follow from its tenant, its task and its fencing number: see attemptIDs. So
// the node that gets a report knows the span of the attempt, though another node may have sent it.
package tracing
