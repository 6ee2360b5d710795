package history

import (
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	// maxPoints is the most points of an answer.
	maxPoints = 1500
	// maxTypePoints is the most points of an answer by type.
	maxTypePoints = 20_000
	// maxTypeUnits is the most minutes or hours, of all types, that are read for such an answer.
	maxTypeUnits = 100_000
)

// defaultSpan is the time before now that a history is of, unless the caller says.
const defaultSpan = time.Hour

// steps are the times of one point that a caller may ask for. Each divides a day.
var steps = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour,
	6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// fewPoints is the most points for which a step is chosen, if the caller doesn't say.
const fewPoints = 300

// Query says which history to read.
type Query struct {
	Tenant string
	Type   string // "": all types together
	Stage  string // "": all stages together
	// From and Until are rounded outwards, to steps. Until is now if it is zero, From an hour
	// before it.
	From, Until time.Time
	Step        time.Duration // of one point; 0: the shortest with at most 300 points
	ByType      bool          // also read each type by itself; only without Type
}

// fix checks a query at a time, and fills in what it leaves out. Its errors are CodeInvalid.
func (q Query) fix(now time.Time) (Query, error) {
	if q.Until.IsZero() || q.Until.After(now) {
		q.Until = now
	}
	if q.From.IsZero() {
		q.From = q.Until.Add(-defaultSpan)
	}
	if !q.From.Before(q.Until) {
		return q, asyncflow.InvalidField("from", "is %s; it must be before until and before now",
			q.From.UTC().Format(time.RFC3339))
	}
	// A caller that asks for 30 days asks a moment before it is answered.
	if q.From.Before(now.Add(-hoursKept - time.Hour)) {
		return q, asyncflow.InvalidField("from", "is %s; the history is kept for 30 days",
			q.From.UTC().Format(time.RFC3339))
	}
	byMinute := !q.From.Before(now.Add(-minutesKept - time.Minute))
	if q.Step == 0 {
		q.Step = q.shortestStep(byMinute)
	}
	if !slices.Contains(steps, q.Step) {
		return q, asyncflow.InvalidField("step", "is %s; the steps are %s", q.Step,
			"1m, 2m, 5m, 10m, 15m, 30m, 1h, 2h, 3h, 4h, 6h, 12h and 24h")
	}
	if q.Step < time.Hour && !byMinute {
		return q, asyncflow.InvalidField("step", "is %s; it must be 1h or longer from more than "+
			"24 hours ago on", q.Step)
	}
	q.From = q.From.UTC().Truncate(q.Step)
	if end := q.Until.UTC().Truncate(q.Step); end.Before(q.Until) {
		q.Until = end.Add(q.Step)
	} else {
		q.Until = end
	}
	if n := q.points(q.Step); n > maxPoints {
		return q, asyncflow.InvalidField("step",
			"is %s, which makes %d points; there are %d at most", q.Step, n, maxPoints)
	}
	return q, nil
}

// boundTypes refuses a query by type that takes too much, if there are so many types.
func (q Query) boundTypes(types int) error {
	if !q.ByType {
		return nil
	}
	if n := q.points(q.Step); types*n > maxTypePoints {
		return asyncflow.InvalidField("step", "is %s, which makes %d points of each of %d "+
			"types; there are %d at most in all", q.Step, n, types, maxTypePoints)
	}
	unit, units := time.Minute, "minutes"
	if q.Step >= time.Hour {
		unit, units = time.Hour, "hours"
	}
	if n := q.points(unit); types*n > maxTypeUnits {
		return asyncflow.InvalidField("from", "is %d %s before until, of each of %d types; %d %s "+
			"at most are read for all: begin later, or ask for one type", n, units, types,
			maxTypeUnits, units)
	}
	return nil
}

func (q Query) points(step time.Duration) int { return int(q.Until.Sub(q.From) / step) }

// shortestStep returns the shortest step with few points.
func (q Query) shortestStep(byMinute bool) time.Duration {
	for _, step := range steps {
		if (byMinute || step >= time.Hour) && q.points(step) <= fewPoints {
			return step
		}
	}
	return steps[len(steps)-1]
}
