package timetable

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// Patience is how late the first due tick may be for all due ticks to count as on time. If it
// is later, no node was running, and the ticks were missed.
const Patience = time.Minute

// Due returns the ticks for which to submit tasks now. next is the first unprocessed tick. If
// ticks were missed, the schedule's catch-up policy selects among them; missed reports that.
func (t Timetable) Due(s asyncflow.Schedule, next, now time.Time) (ticks []time.Time, missed bool) {
	switch {
	case next.After(now):
		return nil, false
	case now.Sub(next) <= Patience:
		return t.Latest(next, now, int(Patience/asyncflow.MinEvery)+1), false
	case s.CatchUp == asyncflow.CatchUpNone:
		return nil, true
	case s.CatchUp == asyncflow.CatchUpAll:
		return t.Latest(next, now, s.CatchUpLimit), true
	}
	return t.Latest(next, now, 1), true
}
