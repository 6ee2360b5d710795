package timetable

import (
	"fmt"
	mathbits "math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the same zones on machines without any

	"github.com/robfig/cron/v3"

	"github.com/asyncflow/asyncflow"
)

// clockTimes are the times that a cron expression names, in the local time of a zone.
type clockTimes struct {
	spec   *cron.SpecSchedule // evaluated in UTC, as local times
	zone   *time.Location
	hourly bool // the expression names every hour
}

// searches is the number of five-year periods to search for a matching time: 29 February may be
// eight years away.
const searches = 2

func newClockTimes(expression, zoneName string) (clockTimes, error) {
	zone, err := loadZone(zoneName)
	if err != nil {
		return clockTimes{}, err
	}
	spec, err := parse(expression)
	if err != nil {
		return clockTimes{}, asyncflow.InvalidField("cron", "%v", err)
	}
	const hours = 1<<24 - 1
	c := clockTimes{spec: spec, zone: zone, hourly: spec.Hour&hours == hours}
	if c.shown(time.Unix(0, 0).UTC()).IsZero() {
		return clockTimes{}, asyncflow.InvalidField("cron", "names a day that never comes")
	}
	return c, nil
}

// parse reads an expression of five fields, or a descriptor such as @daily.
func parse(expression string) (spec *cron.SpecSchedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			spec, err = nil, fmt.Errorf("is not a cron expression")
		}
	}()
	switch {
	case strings.Contains(expression, "="):
		return nil, fmt.Errorf("must not name a time zone: time_zone does")
	case strings.HasPrefix(expression, "@every"):
		return nil, fmt.Errorf("must not be @every: every is a field of its own")
	}
	parsed, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, explain(expression)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	switch {
	case !ok:
		return nil, fmt.Errorf("is not a cron expression")
	case spec.Minute == 0 || spec.Hour == 0 || spec.Dom == 0 || spec.Month == 0 || spec.Dow == 0:
		return nil, fmt.Errorf("is not a cron expression: a field of it names nothing")
	}
	spec.Location = time.UTC
	return spec, nil
}

// cronFields are the fields of an expression, and their ranges.
var cronFields = [...]struct{ name, values string }{
	{"minute", "0 to 59"},
	{"hour", "0 to 23"},
	{"day of the month", "1 to 31"},
	{"month", "1 to 12, or JAN to DEC"},
	{"day of the week", "0 to 6 from Sunday on, or SUN to SAT"},
}

// explain returns what is wrong with an invalid expression.
func explain(expression string) error {
	fields := strings.Fields(expression)
	switch {
	case strings.HasPrefix(expression, "@"):
		return fmt.Errorf("is %.20q; it must be @hourly, @daily, @weekly, @monthly, @yearly, or "+
			"have five fields", expression)
	case len(fields) != len(cronFields):
		return fmt.Errorf("has %d fields; it must have five: minute, hour, day of the month, "+
			"month, day of the week", len(fields))
	}
	for i, f := range cronFields {
		alone := slices.Repeat([]string{"*"}, len(cronFields))
		alone[i] = fields[i]
		if _, err := cron.ParseStandard(strings.Join(alone, " ")); err != nil {
			return fmt.Errorf("has %.20q for the %s; it must be of %s, such as *, 2, 1-5, 1,3 or "+
				"*/2",
				fields[i], f.name, f.values)
		}
	}
	return fmt.Errorf("is not a cron expression")
}

// checkSteps refuses a step that is larger than what it counts through, such as */90 in minutes:
// it would only ever name the first value.
func checkSteps(expression string) error {
	for i, field := range strings.Fields(expression) {
		for part := range strings.SplitSeq(field, ",") {
			values, text, stepped := strings.Cut(part, "/")
			if !stepped || i >= len(cronFields) {
				continue
			}
			step, err := strconv.Atoi(text)
			if most := countValues(i, values); err != nil || step > most {
				return asyncflow.InvalidField("cron",
					"has %.20q for the %s: a step of %s, among only %d values, would name just "+
						"one of them",
					part, cronFields[i].name, text, most)
			}
		}
	}
	return nil
}

// countValues returns how many values a step goes through in a field of a valid expression.
func countValues(field int, values string) int {
	alone := slices.Repeat([]string{"*"}, len(cronFields))
	alone[field] = values + "/1"
	spec, err := parse(strings.Join(alone, " "))
	if err != nil {
		return 0
	}
	const star = 1 << 63 // the parser's mark of a *
	bits := [...]uint64{spec.Minute, spec.Hour, spec.Dom, spec.Month, spec.Dow}[field]
	return mathbits.OnesCount64(bits &^ star)
}

var (
	zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)
	zones    sync.Map // of name to *time.Location
)

// loadZone returns a time zone by its IANA name.
func loadZone(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	unknown := asyncflow.InvalidField("time_zone",
		"is %q, which is not a time zone such as Europe/Berlin or UTC", name)
	if !zoneName.MatchString(name) || name == "Local" { // the zone of the node must not matter
		return nil, unknown
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknown
	}
	zones.Store(name, zone)
	return zone, nil
}

// next returns the first tick after a time, or zero if there is none.
func (c clockTimes) next(after time.Time) time.Time {
	if c.hourly {
		return c.nextShown(after)
	}
	for shown := asUTC(after.In(c.zone)); ; {
		if shown = c.shown(shown); shown.IsZero() {
			return time.Time{}
		}
		// otherwise clocks were put back, and showed it before
		if tick := firstMoment(c.zone, shown); tick.After(after) {
			return tick
		}
	}
}

// nextShown returns the first moment after a time at which the clocks show a named time.
func (c clockTimes) nextShown(after time.Time) time.Time {
	var end time.Time
	for at := after.Add(1); ; at = end { // between changes, clocks run evenly
		var offset time.Duration
		offset, end = segment(c.zone, at)
		shown := c.shown(at.UTC().Add(offset - 1))
		if shown.IsZero() {
			return time.Time{}
		}
		if tick := shown.Add(-offset); end.IsZero() || tick.Before(end) {
			return tick
		}
	}
}

// shown returns the first named local time after another, or zero if there is none. Local times
// are written as if they were UTC.
func (c clockTimes) shown(after time.Time) time.Time {
	for range searches {
		if next := c.spec.Next(after); !next.IsZero() {
			return next
		}
		after = after.AddDate(5, 0, 0)
	}
	return time.Time{}
}

// asUTC returns a local time, written as if it were UTC.
func asUTC(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// segment returns the offset of a zone from UTC at a time, and until when it applies; zero: for
// ever.
func segment(zone *time.Location, at time.Time) (offset time.Duration, end time.Time) {
	at = at.In(zone)
	_, seconds := at.Zone()
	_, end = at.ZoneBounds()
	return time.Duration(seconds) * time.Second, end
}

// farthest is larger than any zone's offset from UTC.
const farthest = 48 * time.Hour

// firstMoment returns the first moment at which the clocks of a zone show a time or a
// later one.
func firstMoment(zone *time.Location, shown time.Time) time.Time {
	var end time.Time
	for at := shown.Add(-farthest); ; at = end {
		var offset time.Duration
		offset, end = segment(zone, at)
		moment := shown.Add(-offset)
		if moment.Before(at) { // the clocks were just put forward past it
			return at.UTC()
		}
		if end.IsZero() || moment.Before(end) {
			return moment
		}
	}
}
