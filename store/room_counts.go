package store

import "github.com/asyncflow/asyncflow/store/internal/counts"

// The words of package counts for callers of the store.

type (
	// Backlog counts the tasks of a type that are due, not under way, and wait for the same reason.
	Backlog = counts.Backlog
	// EndpointCounts are counts of the attempts at an endpoint.
	EndpointCounts = counts.EndpointCounts
	// Failing counts the attempts of a type, and the failed ones.
	Failing = counts.Failing
	// Rates are per second, over the last minute.
	Rates = counts.Rates
	// KeyTasks counts due tasks of a flow key.
	KeyTasks = counts.KeyTasks
	// StageClaims counts claims and votes that led to nothing in a stage.
	StageClaims = counts.StageClaims
	// StageWait is how long tasks were due in a stage until they were started.
	StageWait = counts.StageWait
	// Stats are the counts of a task type.
	Stats = counts.Stats
	// Worker is how a worker does in a stage.
	Worker = counts.Worker
	// WorkerFilter says which workers to report.
	WorkerFilter = counts.WorkerFilter
	// WorkerKey says which worker, and for what it works.
	WorkerKey = counts.WorkerKey
	// WorkerReport lists the workers that run tasks now, or ended attempts lately.
	WorkerReport = counts.WorkerReport
	// WorkerState says how a worker does.
	WorkerState = counts.WorkerState
)

const (
	// MinutesKept is how long minutes are kept.
	MinutesKept = counts.MinutesKept
	// MaxWorkers is the most workers in a report.
	MaxWorkers = counts.MaxWorkers
	// WorkerGone: its last attempt was lost, or its stage goes on without it.
	WorkerGone = counts.WorkerGone
	// WorkerFailing: half of its attempts fail.
	WorkerFailing = counts.WorkerFailing
	// WorkerSlow: its attempts take twice as long as the others' of its stage.
	WorkerSlow = counts.WorkerSlow
	// WorkerWell: nothing of that.
	WorkerWell = counts.WorkerWell
)
