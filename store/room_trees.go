package store

import "github.com/asyncflow/asyncflow/store/internal/trees"

// The words of package trees for callers of the store.

type (
	// Beginning are tasks of a type that may begin, or go on with their next stage, at once.
	Beginning = trees.Beginning
	// FollowUp is a transaction that does some of what earlier ones of a tenant left to do.
	FollowUp = trees.FollowUp
	// Redrive says where a failed or cancelled task starts again.
	Redrive = trees.Redrive
)

// FollowUpRows is how many rows of the outbox one transaction handles.
const FollowUpRows = trees.FollowUpRows
