package timetable

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schedule    asyncflow.Schedule
		field, says string
	}{
		"four fields": {asyncflow.Schedule{Cron: "* * * *"}, "cron",
			"has 4 fields; it must have five: minute, hour,"},
		"six fields": {asyncflow.Schedule{Cron: "0 * * * * *"}, "cron",
			"has 6 fields; it must have five: minute, hour,"},
		"out of bounds": {asyncflow.Schedule{Cron: "60 * * * *"}, "cron",
			`has "60" for the minute; it must be of 0 to 59, such as`},
		"no word of it": {asyncflow.Schedule{Cron: "at noon"}, "cron", "has 2 fields"},
		"no name of a day": {asyncflow.Schedule{Cron: "0 3 * * monday"}, "cron",
			`has "monday" for the day of the week; it must be of 0 to 6`},
		"a step of nothing": {asyncflow.Schedule{Cron: "*/15 */0 * * *"}, "cron",
			`has "*/0" for the hour`},
		"a long field": {asyncflow.Schedule{Cron: "0 " + strings.Repeat("9", 99) + " * * *"},
			"cron", "has \"" + strings.Repeat("9", 20) + "\" for the hour"},
		"a day that is none": {asyncflow.Schedule{Cron: "0 0 30 2 *"}, "cron",
			"names a day that never comes"},
		"nothing in a field":  {asyncflow.Schedule{Cron: ", * * * *"}, "cron", "names nothing"},
		"nothing in the last": {asyncflow.Schedule{Cron: "0 0 1 1 ,"}, "cron", "names nothing"},
		"an interval":         {asyncflow.Schedule{Cron: "@every 1h"}, "cron", "every is a field"},
		"a zone": {asyncflow.Schedule{Cron: "TZ=Europe/Berlin 0 0 * * *"}, "cron",
			"time_zone does"},
		"a zone of another way": {asyncflow.Schedule{Cron: "CRON_TZ=UTC @daily"}, "cron",
			"time_zone does"},
		"what the parser fears": {asyncflow.Schedule{Cron: "TZ=0"}, "cron", "time_zone does"},
		"no descriptor": {asyncflow.Schedule{Cron: "@fortnightly"}, "cron",
			`is "@fortnightly"; it must be @hourly, @daily`},
		"an unknown zone": {asyncflow.Schedule{Cron: "@daily", TimeZone: "Europe/Atlantis"},
			"time_zone", `is "Europe/Atlantis", which is not a time zone such as Europe/Berlin`},
		"the node's own zone": {asyncflow.Schedule{Cron: "@daily", TimeZone: "Local"}, "time_zone",
			"not a time zone"},
		"a file": {asyncflow.Schedule{Cron: "@daily", TimeZone: "../../etc/passwd"},
			"time_zone", "not a time zone"},
		"with leap seconds": {asyncflow.Schedule{Cron: "@daily", TimeZone: "right/Europe/Berlin"},
			"time_zone", "not a time zone"},
		"over before it begins": {asyncflow.Schedule{Cron: "0 0 1 1 *",
			StartsAt: at(t, "2026-01-02T00:00:00Z"), EndsAt: at(t, "2027-01-01T00:00:00Z")},
			"ends_at",
			"before the first tick"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.schedule.WithDefaults(), time.Now())
			var known *asyncflow.Error
			require.ErrorAs(t, err, &known, name)
			require.Equal(t, asyncflow.CodeInvalid, known.Code, name)
			require.Equal(t, c.field, known.Fields[0].Field, name)
			require.Contains(t, known.Fields[0].Message, c.says, name)
		})
	}
	for _, zone := range []string{"UTC", "Etc/GMT+12", "America/Argentina/Buenos_Aires", "GB-Eire",
		"EST5EDT", "W-SU"} {
		t.Run(zone, func(t *testing.T) {
			_, err := loadZone(zone)
			require.NoError(t, err)
		})
	}
}

// A step that counts beyond its field is refused, since it names one value only.
func TestStepsBeyondTheRange(t *testing.T) {
	t.Parallel()
	for cron, says := range map[string]string{
		"*/90 * * * *":      `has "*/90" for the minute: a step of 90, among only 60 values`,
		"0 */25 * * *":      `has "*/25" for the hour: a step of 25, among only 24 values`,
		"0 0 */40 * *":      `has "*/40" for the day of the month`,
		"0 0 1 */13 *":      `has "*/13" for the month`,
		"0 0 * * */8":       `has "*/8" for the day of the week`,
		"1,50/15 * * * *":   `has "50/15" for the minute: a step of 15, among only 10 values`,
		"0 9-17/10 * * *":   "a step of 10, among only 9 values",
		"0 0 * * MON-FRI/6": "a step of 6, among only 5 values",
	} {
		t.Run(cron, func(t *testing.T) {
			err := Check(asyncflow.Schedule{Cron: cron}.WithDefaults(), time.Now())
			require.ErrorContains(t, err, says, cron)
			_, err = New(asyncflow.Schedule{Cron: cron}.WithDefaults(), time.Now())
			require.NoError(t, err, "a stored one goes on: %s", cron)
		})
	}
	for _, cron := range []string{"*/60 * * * *", "0 */24 * * *", "5/10 * * * *",
		"1-5/2,*/20 * * * *",
		"0 0 * JAN-JUN/3 MON-FRI/2", "@daily", "?/5 * * * *"} {
		t.Run(cron, func(t *testing.T) {
			require.NoError(t, Check(asyncflow.Schedule{Cron: cron}.WithDefaults(), time.Now()))
		})
	}
}

// No expression causes a panic or takes long.
func FuzzCron(f *testing.F) {
	for _, text := range []string{"* * * * *", "@daily", "TZ=0", "CRON_TZ=",
		"*/9223372036854775807 * * * *", "0 0 29 2 *", "1-2-3 * * * *", "0-59/0 * * * *",
		"0 0 31 4,6 *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" { // an interval
			return
		}
		table, err := New(asyncflow.Schedule{Cron: text, TimeZone: "Europe/Berlin"}, time.Time{})
		if err == nil {
			require.False(t, table.Next(time.Unix(1767225600, 0)).IsZero(), "%q", text)
		}
	})
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	created := at(t, "2026-11-21T10:00:00.7Z")
	every := asyncflow.Schedule{Every: asyncflow.NewDuration(90 * time.Minute)}
	starts, ends := every, every
	starts.StartsAt = at(t, "2026-11-22T00:00:00.5Z")
	ends.StartsAt, ends.EndsAt = at(t, "2026-11-21T00:00:00Z"), at(t, "2026-11-21T12:00:00Z")
	for name, c := range map[string]struct {
		schedule asyncflow.Schedule
		from     string
		want     []string
	}{
		"from its creation": {every, "2026-11-21T10:00:00.7Z",
			[]string{"2026-11-21T11:30:00Z", "2026-11-21T13:00:00Z"}},
		"later": {every, "2026-11-21T13:00:00Z", []string{"2026-11-21T14:30:00Z"}},
		"from its start": {starts, "2026-11-21T10:00:00Z",
			[]string{"2026-11-22T00:00:01Z", "2026-11-22T01:30:01Z"}},
		"until before its end": {ends, "2026-11-21T08:00:00Z",
			[]string{"2026-11-21T09:00:00Z", "2026-11-21T10:30:00Z"}},
		"after its end": {ends, "2026-11-21T11:00:00Z", nil},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := New(c.schedule, created)
			require.NoError(t, err)
			var got []string
			for _, tick := range table.Upcoming(at(t, c.from), max(2, len(c.want))) {
				got = append(got, tick.Format(time.RFC3339))
			}
			if name == "later" {
				got = got[:1]
			}
			require.Equal(t, c.want, got, name)
		})
	}
	noon := asyncflow.Schedule{Cron: "0 12 * * *", TimeZone: "UTC",
		StartsAt: at(t, "2026-11-21T12:00:00Z"), EndsAt: at(t, "2026-11-23T12:00:00Z")}
	table, err := New(noon, created)
	require.NoError(t, err)
	require.Equal(t, []time.Time{at(t, "2026-11-21T12:00:00Z"), at(t, "2026-11-22T12:00:00Z")},
		table.Upcoming(created.AddDate(-1, 0, 0), 5))
	far := asyncflow.Schedule{Cron: "@yearly", TimeZone: "UTC"}
	table, err = New(far, created)
	require.NoError(t, err)
	require.Len(t, table.Upcoming(at(t, "9996-06-01T00:00:00Z"), 10), 3,
		"there are no years after 9999")
}

func TestDue(t *testing.T) {
	t.Parallel()
	schedule := func(c asyncflow.CatchUp, limit int) asyncflow.Schedule {
		return asyncflow.Schedule{Cron: "* * * * *", TimeZone: "UTC", CatchUp: c,
			CatchUpLimit: limit}
	}
	seconds := asyncflow.Schedule{Every: asyncflow.NewDuration(time.Second),
		CatchUp: asyncflow.CatchUpNone}
	for name, c := range map[string]struct {
		schedule  asyncflow.Schedule
		next, now string
		want      []string
		missed    bool
	}{
		"not yet": {schedule("last", 1), "10:01:00", "10:00:59", nil, false},
		"now": {schedule("none", 1), "10:01:00", "10:01:00", []string{"10:01:00"},
			false},
		"a little late": {schedule("none", 1), "10:01:00", "10:02:00",
			[]string{"10:01:00", "10:02:00"}, false},
		"missed, none": {schedule("none", 1), "10:01:00", "10:02:01", nil, true},
		"missed, last": {schedule("last", 9), "10:01:00", "10:07:01", []string{"10:07:00"},
			true},
		"missed, all": {schedule("all", 9), "10:01:00", "10:03:30",
			[]string{"10:01:00", "10:02:00", "10:03:00"}, true},
		"missed, all up to three": {schedule("all", 3), "10:01:00", "10:09:30",
			[]string{"10:07:00", "10:08:00", "10:09:00"}, true},
		"seconds, a little late": {seconds, "10:00:00", "10:00:02.5",
			[]string{"10:00:00", "10:00:01", "10:00:02"}, false},
		"seconds, missed": {seconds, "10:00:00", "10:01:01", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := func(text string) time.Time { return at(t, "2026-11-21T"+text+"Z") }
			table, err := New(c.schedule, at(t, "2026-11-21T09:00:00Z"))
			require.NoError(t, err)
			ticks, missed := table.Due(c.schedule, clock(c.next), clock(c.now))
			var got []string
			for _, tick := range ticks {
				got = append(got, tick.Format(time.TimeOnly))
			}
			require.Equal(t, c.want, got, name)
			require.Equal(t, c.missed, missed, name)
		})
	}
}

// After years without a node, the latest ticks are found without computing all.
func TestLatestLooksBackNoFartherThanItMust(t *testing.T) {
	t.Parallel()
	table := byCron(t, "* * * * *", "Europe/Berlin")
	counted := &counter{rule: table.rule}
	table.rule = counted
	now := at(t, "2026-11-21T10:00:00Z")
	ticks := table.Latest(now.AddDate(-50, 0, 0), now, 1000)
	require.Len(t, ticks, 1000)
	require.Equal(t, now, ticks[999])
	require.Less(t, counted.n, 10_000)
	yearly := byCron(t, "@yearly", "UTC")
	require.Len(t, yearly.Latest(now.AddDate(-3, 0, 0), now, 10), 3)
}

type counter struct {
	rule
	n int
}

func (c *counter) next(after time.Time) time.Time {
	c.n++
	return c.rule.next(after)
}
