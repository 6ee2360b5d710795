package store

import (
	"context"
	"slices"

	"github.com/asyncflow/asyncflow"
)

// family is where a list finds the children of a task: their ids come in runs. nil: the list is of
// any tasks.
type family []run

// familyOf returns the ids of the children of a task; all tasks for the zero id.
func (s *Store) familyOf(ctx context.Context, t *Type, parent asyncflow.TaskID) (family, error) {
	if parent == (asyncflow.TaskID{}) {
		return nil, nil
	}
	if parent.Type != t.Name {
		return nil, asyncflow.InvalidField("parent", "is of another type than %s", t.Name)
	}
	o, err := latestFanOut(ctx, s.of(t.Tenant), t, parent.Number, 0, "")
	if err != nil || o == nil {
		return family{}, err
	}
	return append(family{}, o.runs(0, o.spawned)...), nil
}

// before returns the number before which the next window of a list ends, at most the given one, and
// the least number in it. Without any more it returns 0.
func (f family) before(number int64) (before, least int64) {
	if f == nil {
		return number, 0
	}
	for _, r := range slices.Backward(f) {
		if r.first < number {
			return min(number, r.last()+1), r.first
		}
	}
	return 0, 0
}
