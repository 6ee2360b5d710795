package dispatcher

import (
	"context"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// withoutExpired ends the leased tasks with a lifetime that is over, and returns the remaining
// tasks. It asks the database only about tasks that may have begun in time.
func (d *Dispatcher) withoutExpired(t *store.Type, leases []asyncflow.Lease) []asyncflow.Lease {
	now := d.store.Clock.Now()
	overdue := func(l asyncflow.Lease) bool {
		why, _ := t.Overdue(&l, now)
		return why != ""
	}
	if !slices.ContainsFunc(leases, overdue) {
		return leases
	}
	rest := make([]asyncflow.Lease, 0, len(leases))
	var expired []asyncflow.Settlement
	var unread []asyncflow.Lease
	ctx, cancel := context.WithTimeout(d.sending, leaseTime)
	defer cancel()
	for _, l := range leases {
		why, ask := t.Overdue(&l, now)
		if ask != asyncflow.Certain {
			var err error
			if why, err = d.store.SetBegun(ctx, t, &l, now); err != nil {
				unread = append(unread, l)
				continue
			}
		}
		if why == "" {
			rest = append(rest, l)
			continue
		}
		o := asyncflow.ExpiredOutcome(why)
		expired = append(expired, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(t.TaskType, l, o, now)})
	}
	d.giveBack(t, unread, "it can't be read whether the task has begun in time")
	d.settle(t, expired...)
	return rest
}
