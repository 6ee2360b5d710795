package timetable

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// Timetable computes the ticks of a schedule. They are whole seconds.
type Timetable struct {
	rule       rule
	start, end time.Time // from start until before end; zero: no bound
}

// rule returns the first tick after a time, or zero if there is none.
type rule interface {
	next(after time.Time) time.Time
}

// lastYear is the last year that RFC 3339 can represent.
const lastYear = 9999

// New returns the timetable of a schedule with other fields that are valid. Intervals are counted
// from created, the schedule's creation, unless a start is set. An error names cron, time_zone or
// ends_at.
func New(s asyncflow.Schedule, created time.Time) (Timetable, error) {
	t := Timetable{start: s.StartsAt, end: s.EndsAt}
	if s.Cron == "" {
		t.rule = newInterval(s, created)
		return t, nil
	}
	times, err := newClockTimes(s.Cron, s.TimeZone)
	if err != nil {
		return Timetable{}, err
	}
	t.rule = times
	if !t.start.IsZero() && t.Next(time.Time{}).IsZero() {
		return Timetable{}, asyncflow.InvalidField("ends_at",
			"comes before the first tick after starts_at")
	}
	return t, nil
}

// Check is New for a schedule that a caller sets: it also refuses what may be in a stored one.
func Check(s asyncflow.Schedule, created time.Time) error {
	if _, err := New(s, created); err != nil || s.Cron == "" {
		return err
	}
	return checkSteps(s.Cron)
}

// Next returns the first tick after a time, or zero if there is none.
func (t Timetable) Next(after time.Time) time.Time {
	if after.Before(t.start) {
		after = t.start.Add(-1) // a tick at the start counts
	}
	tick := t.rule.next(after)
	if tick.Year() > lastYear || !t.end.IsZero() && !tick.Before(t.end) {
		return time.Time{}
	}
	return tick
}

// Upcoming returns the first n ticks after a time.
func (t Timetable) Upcoming(after time.Time, n int) []time.Time {
	var ticks []time.Time
	for tick := t.Next(after); !tick.IsZero() && len(ticks) < n; tick = t.Next(tick) {
		ticks = append(ticks, tick)
	}
	return ticks
}

// Latest returns the last n ticks from one time to another, both included. It searches back no
// farther than necessary.
func (t Timetable) Latest(from, to time.Time, n int) []time.Time {
	for span := time.Minute; ; span *= 2 {
		begin := to.Add(-span)
		all := span > farBack || !begin.After(from)
		if all {
			begin = from
		}
		var ticks []time.Time
		for tick := t.Next(begin.Add(-1)); !tick.IsZero() && !tick.After(to); tick = t.Next(tick) {
			if ticks = append(ticks, tick); len(ticks) > n {
				ticks = ticks[1:]
			}
		}
		if all || len(ticks) == n {
			return ticks
		}
	}
}

// farBack is the span at which the search stops doubling.
const farBack = 100 * 365 * 24 * time.Hour

// interval ticks at the anchor, and at a fixed interval after it.
type interval struct {
	anchor time.Time
	every  time.Duration
}

func newInterval(s asyncflow.Schedule, created time.Time) interval {
	every := s.Every.Std()
	if s.StartsAt.IsZero() {
		return interval{created.UTC().Truncate(time.Second).Add(every), every}
	}
	return interval{s.StartsAt.UTC().Add(time.Second - 1).Truncate(time.Second), every}
}

func (i interval) next(after time.Time) time.Time {
	if after.Before(i.anchor) {
		return i.anchor
	}
	every := int64(i.every / time.Second) // a time.Duration holds 292 years only
	passed := after.Unix() - i.anchor.Unix()
	return time.Unix(i.anchor.Unix()+(passed/every+1)*every, 0).UTC()
}

// patience is how late the first due tick may be for all due ticks to count as on time. If it
// is later, no node was running, and the ticks were missed.
const patience = time.Minute

// Due returns the ticks for which to submit tasks now. next is the first unprocessed tick. If
// ticks were missed, the schedule's catch-up policy selects among them; missed reports that.
func (t Timetable) Due(s asyncflow.Schedule, next, now time.Time) (ticks []time.Time, missed bool) {
	switch {
	case next.After(now):
		return nil, false
	case now.Sub(next) <= patience:
		return t.Latest(next, now, int(patience/asyncflow.MinEvery)+1), false
	case s.CatchUp == asyncflow.CatchUpNone:
		return nil, true
	case s.CatchUp == asyncflow.CatchUpAll:
		return t.Latest(next, now, s.CatchUpLimit), true
	}
	return t.Latest(next, now, 1), true
}
