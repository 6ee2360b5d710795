package store

import "github.com/asyncflow/asyncflow/store/internal/trees"

// The words of package trees for callers of the store.

type (
	// ChildResult is how a child ended, or where it stands.
	ChildResult = trees.ChildResult
	// DependencyState is a dependency as it stands.
	DependencyState = trees.DependencyState
	// Redrive says where a failed or cancelled task starts again.
	Redrive = trees.Redrive
	// Starter has tasks go on with their next stage, and new children begin, at once, if this node
	// has capacity for them.
	Starter = trees.Starter
)

// NoResults is the context of the stage after a fan-out of an empty list.
var NoResults = trees.NoResults
