package tasks

import (
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// MaxFilterIDs is the most ids that a filter may name.
const MaxFilterIDs = 1000

// checkIDs returns what is wrong with the ids of a filter of one type, or nil.
func (f Filter) checkIDs() error {
	if n := len(f.IDs); n > MaxFilterIDs {
		return asyncflow.InvalidField("ids", "has %d ids; the limit is %d", n, MaxFilterIDs)
	}
	return nil
}

// numbersAfter returns the numbers of the tasks of a type among some ids that are greater than
// after and in a roll that is still there. They ascend, without duplicates, and are of one roll;
// over reports whether there are none in later rolls.
func numbersAfter(
	ids []asyncflow.TaskID, t *config.Type, after int64,
) (numbers []int64, over bool) {
	var all []int64
	for _, id := range ids {
		if id.Type == t.Name && id.Number > after && t.Has(id.Position()) {
			all = append(all, id.Number)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return nil, true
	}
	position := asyncflow.TaskID{Number: all[0]}.Position()
	for i, number := range all {
		if (asyncflow.TaskID{Number: number}).Position() != position {
			return all[:i], false
		}
	}
	return all, true
}
