package timetable

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// Patience is how late the first tick that is due may be for all of them to count as on
// time. After that nobody was there, and they were missed.
const Patience = time.Minute

// Due returns the ticks that tasks are to be submitted for now. next is the first tick
// that wasn't dealt with. Where ticks were missed, the schedule's catch-up policy chooses
// among them; missed tells so.
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
