package tasks

import (
	"time"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Tasks reads, lists and watches tasks, and changes one or many of them.
type Tasks struct {
	core      *catalog.Core
	hot       *hot.Path
	trees     *trees.Trees
	counts    *counts.Counts
	countTime time.Duration
	// failureTime is how long a report of failures reads.
	failureTime time.Duration
	paths       knownPaths
}

// New returns the tasks of a database.
func New(core *catalog.Core, hot *hot.Path, trees *trees.Trees, counts *counts.Counts) *Tasks {
	return &Tasks{core: core, hot: hot, trees: trees, counts: counts, countTime: countTime,
		failureTime: failureTime}
}
