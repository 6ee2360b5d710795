package store

import "github.com/asyncflow/asyncflow/store/internal/counts"

// The words of package counts for callers of the store.

type (
	// Backlog counts the tasks of a type that are due, not under way, and wait for the same reason.
	Backlog = counts.Backlog
	// BlockedKeys are the ordered flow keys of a type that stand still.
	BlockedKeys = counts.BlockedKeys
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
)

// MinutesKept is how long minutes are kept.
const MinutesKept = counts.MinutesKept
