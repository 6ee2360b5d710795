package tasks

import (
	"time"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Tasks reads, lists and watches tasks, and changes one or many of them. Its own methods are about
// one task; callers use it as one.
type Tasks struct {
	lists
	operations
	paths knownPaths
}

type (
	// base is what all of them need.
	base struct {
		core   *catalog.Core
		hot    *hot.Path
		trees  *trees.Trees
		counts *counts.Counts
	}
	// lists finds many tasks: it lists and counts them, and groups their failures.
	lists struct {
		base
		countTime time.Duration
		// failureTime is how long a report of failures reads.
		failureTime time.Duration
	}
	// operations changes many tasks, in steps.
	operations struct{ *lists }
)

// New returns the tasks of a database.
func New(core *catalog.Core, hot *hot.Path, trees *trees.Trees, counts *counts.Counts) *Tasks {
	s := &Tasks{lists: lists{base: base{core, hot, trees, counts}, countTime: countTime,
		failureTime: failureTime}}
	s.operations = operations{&s.lists}
	return s
}
