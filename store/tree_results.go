package store

import (
	"context"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
)

// ChildResult is the result of a child.
type ChildResult struct {
	ID     asyncflow.TaskID // zero: it was never made
	Index  int
	Status asyncflow.Status
	Output json.RawMessage // nil unless it succeeded
}

// ChildResults returns up to limit results of the children of a task, from an index on, and how
// many children there are. seq names the fan-out: see asyncflow.Child.
func (s *Store) ChildResults(
	ctx context.Context, tenant string, parent asyncflow.TaskID, seq, from, limit int,
) (results []ChildResult, count int, err error) {
	return nil, 0, asyncflow.Errorf(asyncflow.CodeUnavailable, "not built")
}
