package store

import "github.com/asyncflow/asyncflow/store/internal/claims"

// The words of package claims for callers of the store.

type (
	// ClaimAsk asks for tasks of a stage.
	ClaimAsk = claims.ClaimAsk
	// StageKey names a stage of a tenant's types.
	StageKey = claims.StageKey
)
