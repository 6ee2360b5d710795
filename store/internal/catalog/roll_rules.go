package catalog

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Retention returns how long a roll is kept once it is idle: for the longest retention of the types
// that may have tasks in it, and in shared tables at least for the default.
func (c *Catalog) Retention(set *config.TableSet, position int) (longest time.Duration) {
	if set.Shared() {
		longest = asyncflow.DefaultRetention
	}
	for _, t := range c.TypesOf(set.Tenant) {
		if t.HasIn(set, position) {
			longest = max(longest, t.Retention.Std())
		}
	}
	return longest
}

// RollSize returns the number of tasks and the age after which the next roll of a table set
// opens.
func (c *Catalog) RollSize(set *config.TableSet) (tasks int64, age time.Duration) {
	if t := c.TypesOf(set.Tenant)[set.Name]; t != nil {
		return int64(t.RollRows), t.RollAge.Std()
	}
	return asyncflow.DefaultRollRows, asyncflow.DefaultRollAge
}
