package governance

import (
	"context"
	"errors"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

// dueMoves returns the steps that give types of the shared set tables of their own, and the one
// that deletes rows of deleted types.
func (j *rollJob) dueMoves(
	ctx context.Context, set *store.TableSet, open store.Roll,
) (steps []rollStep, err error) {
	due, err := j.store.BusyTypes(ctx, set.Tenant, open)
	for _, t := range j.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Shared() && store.AsksForOwnSet(t.TaskType) && !slices.Contains(due, t) {
			due = append(due, t)
		}
	}
	for _, t := range due {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			return j.store.OwnSet(ctx, t)
		})
	}
	deleted, err2 := j.store.HasDeletedTypes(ctx, set.Tenant)
	if deleted {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			return j.deleteRows(ctx, set.Tenant)
		})
	}
	return steps, errors.Join(err, err2)
}

// deleteSteps is how often deleteRows deletes rows before the tenants after it get their turn.
const deleteSteps = 50

// deleteRows deletes rows of deleted types, and reports whether there were any.
func (j *rollJob) deleteRows(ctx context.Context, tenant string) (done bool, err error) {
	at := store.Deleting{More: true}
	for i := 0; at.More && err == nil && i < deleteSteps; i++ {
		at, err = j.store.DeleteRows(ctx, tenant, at)
		done = done || at.Rows > 0
	}
	return done, err
}
