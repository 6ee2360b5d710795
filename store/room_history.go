package store

import "github.com/asyncflow/asyncflow/store/internal/history"

// The words of package history for callers of the store.

type (
	// HistoryQuery says which history to read.
	HistoryQuery = history.Query
	// HistoryPoint is what happened in a step of a history.
	HistoryPoint = history.Point
	// HistoryTimes is how long something took.
	HistoryTimes = history.Times
	// TypeHistory is what the tasks of a type, or of all types, did over time.
	TypeHistory = history.TypeHistory
	// HistorySpan is a time in which nodes recorded.
	HistorySpan = history.RecordedSpan
	// Trouble is what is wrong in a tenant.
	Trouble = history.Trouble
	// Recorded says what a recording of a tenant's history found.
	Recorded = history.Recorded
)

// The numbers of a HistoryPoint.
const (
	HistorySubmitted = history.Submitted
	HistoryAttempts  = history.Attempts
	HistoryFailures  = history.Failures
	HistorySnoozes   = history.Snoozes
	HistorySucceeded = history.Succeeded
	HistoryFailed    = history.Failed
	HistoryCancelled = history.Cancelled
	HistoryRedriven  = history.Redriven
	HistoryEnded     = history.Ended
	HistoryBusy      = history.Busy
	HistoryPending   = history.Pending
	HistoryWaiting   = history.Waiting
	HistoryRunning   = history.Running
)
