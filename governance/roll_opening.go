package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// catchUp is how many rolls the shared set opens at most so that a type may join it.
const catchUp = 3

// nextRoll opens the next roll of a table set. A type with a set of its own that it no longer needs
// goes to the shared one instead. The positions of the shared set must be later than the type's
// were; it opens a roll for that. tasks is about how many are in the open roll.
func (j *rollJob) nextRoll(
	ctx context.Context, set *store.TableSet, tasks int64,
) (done bool, err error) {
	sets := j.store.Catalog.SetsOf(set.Tenant)
	shared := sets[""]
	t := j.store.Catalog.TypesOf(set.Tenant)[set.Name]
	if t == nil || store.AsksForOwnSet(t.TaskType) || tasks >= store.OwnSetTasks {
		return j.store.OpenRoll(ctx, set)
	}
	if shared != nil {
		if behind := set.End - shared.End; behind >= 0 && behind < catchUp {
			return j.store.OpenRoll(ctx, shared)
		}
	}
	if done, err = j.store.JoinSharedSet(ctx, t); done || err != nil {
		return done, err
	}
	return j.store.OpenRoll(ctx, set)
}

// mustOpenNext reports whether the next roll must open: the previous one is drained, and there are
// enough tasks in the open one, or it is old and not empty, or types left it for tables of their
// own, and look at both until it is drained, or there are new searchable fields of types. tasks is
// about how many are in it.
func (j *rollJob) mustOpenNext(
	ctx context.Context, set *store.TableSet, open store.Roll,
) (full bool, tasks int64, err error) {
	most, age := j.store.Catalog.RollSize(set)
	old := j.since(open.OpenedAt) > age
	switch {
	case set.Begin != set.End:
		return false, 0, nil
	case j.typeHasLeft(set, open):
		return true, 0, nil
	case j.since(open.OpenedAt) > searchAfter && j.awaitsSearch(set):
		return true, store.OwnSetTasks, nil // the set stays
	case open.MaxTasks == 0 || !old && open.MaxTasks < most:
		return false, 0, nil
	}
	tasks, err = j.store.TasksIn(ctx, set, open.Position)
	return old || tasks >= most, tasks, err
}

// searchAfter is the least age of an open roll before another one opens because of types with new
// searchable fields, however often these change.
const searchAfter = 10 * time.Minute

// awaitsSearch reports whether there are fields of a type of a table set that are searchable only
// from the next roll on.
func (j *rollJob) awaitsSearch(set *store.TableSet) bool {
	for _, t := range j.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Name == set.Name && t.AwaitsSearch() && set.End < asyncflow.MaxPosition {
			return true
		}
	}
	return false
}

// typeHasLeft reports whether a type left the open roll of a table set.
func (j *rollJob) typeHasLeft(set *store.TableSet, open store.Roll) bool {
	for _, t := range j.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Name != set.Name && t.HasIn(set, open.Position) {
			return true
		}
	}
	return false
}
