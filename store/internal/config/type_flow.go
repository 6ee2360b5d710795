package config

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// FreedKeys returns the flow keys of ended tasks that possibly blocked other tasks of the key. A
// key comes once for each such task.
func (t *Type) FreedKeys(settled []asyncflow.Settlement) (keys []string) {
	if t.Flow == nil || t.Flow.InFlight() == 0 {
		return nil
	}
	for _, settlement := range settled {
		if key := t.LineKeyOf(settlement.Lease.Options); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// Ordered reports whether the type's flow keys are in order.
func Ordered(t *Type) bool { return t.Flow != nil && t.Flow.Ordered }

// Parks reports whether tasks of an ordered flow key that wait for a retry let later ones pass.
func Parks(t *Type) bool { return t.Flow.OnFailure == asyncflow.FlowPark }

// LineTime returns when a task came to the place that a verdict on its lease gives it. That is now,
// except for a task that goes back unsent: it keeps its earlier time. A lease has only the
// order_time, so that LineTime subtracts the head start that is known to be in it.
func LineTime(t *Type, l *asyncflow.Lease, v asyncflow.Verdict, now time.Time) time.Time {
	if v.Kind != asyncflow.Return && v.Kind != asyncflow.Park || l.Options.Child.VoteKey() != "" {
		return now
	}
	placed := v.OrderTime
	if l.Attempt == 1 { // retries have no head start
		placed = placed.Add(now.Sub(asyncflow.EnterOrder(t.TaskType, t.StageIndex(l.Stage),
			l.Options, now)))
	}
	if placed.After(now) { // the task was delayed: its priority didn't apply
		return now
	}
	return placed
}
