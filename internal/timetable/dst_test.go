package timetable

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return parsed
}

func byCron(t *testing.T, expression, zone string) Timetable {
	t.Helper()
	table, err := New(asyncflow.Schedule{Cron: expression, TimeZone: zone}, time.Time{})
	require.NoError(t, err)
	return table
}

// Days on which clocks change, in zones with different rules. Ticks are written in local time.
func TestClocksAreSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron, zone, from string
		want             []string
	}{
		"forward: a time that is left out is at the first moment after": {"30 2 * * *",
			"Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00",
				"2026-03-30T02:30:00+02:00"}},
		"forward: several of them are one": {"*/20 1-3 * * *", "Europe/Berlin",
			"2026-03-29T00:39:00Z", []string{"2026-03-29T01:40:00+01:00",
				"2026-03-29T03:00:00+02:00",
				"2026-03-29T03:20:00+02:00",
				"2026-03-29T03:40:00+02:00", "2026-03-30T01:00:00+02:00"}},
		"forward: every hour goes on evenly": {"30 * * * *", "Europe/Berlin",
			"2026-03-29T00:00:00Z", []string{"2026-03-29T01:30:00+01:00",
				"2026-03-29T03:30:00+02:00",
				"2026-03-29T04:30:00+02:00"}},
		"back: a time that comes twice counts once": {"30 2 * * *", "Europe/Berlin",
			"2026-10-24T00:00:00Z",
			[]string{"2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00",
				"2026-10-26T02:30:00+01:00"}},
		"back: asked in the second hour": {"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z",
			[]string{"2026-10-26T02:30:00+01:00"}},
		"back: every hour goes on evenly": {"30 * * * *", "Europe/Berlin", "2026-10-24T23:00:00Z",
			[]string{"2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00",
				"2026-10-25T02:30:00+01:00",
				"2026-10-25T03:30:00+01:00"}},
		"back: every minute too": {"* * * * *", "Europe/Berlin", "2026-10-25T00:58:00Z",
			[]string{"2026-10-25T02:59:00+02:00", "2026-10-25T02:00:00+01:00",
				"2026-10-25T02:01:00+01:00"}},
		"back: every second hour doesn't": {"0 */2 * * *", "Europe/Berlin", "2026-10-24T21:00:00Z",
			[]string{"2026-10-25T00:00:00+02:00", "2026-10-25T02:00:00+02:00",
				"2026-10-25T04:00:00+01:00"}},
		"New York, forward": {"15 2 * * *", "America/New_York", "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:15:00-04:00"}},
		"New York, back": {"15 1 * * *", "America/New_York", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T01:15:00-04:00", "2026-11-02T01:15:00-05:00"}},
		"New York, a working day": {"0 9 * * 1-5", "America/New_York", "2026-03-06T12:00:00Z",
			[]string{"2026-03-06T09:00:00-05:00", "2026-03-09T09:00:00-04:00"}},
		"Lord Howe, half an hour forward": {"15 2 * * *", "Australia/Lord_Howe",
			"2026-10-03T00:00:00Z", []string{"2026-10-04T02:30:00+11:00",
				"2026-10-05T02:15:00+11:00"}},
		"Lord Howe, half an hour back": {"45 1 * * *", "Australia/Lord_Howe",
			"2026-04-04T00:00:00Z", []string{"2026-04-05T01:45:00+11:00",
				"2026-04-06T01:45:00+10:30"}},
		"Lord Howe, each quarter of an hour, back": {"*/15 * * * *", "Australia/Lord_Howe",
			"2026-04-04T14:30:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:30:00+10:30",
				"2026-04-05T01:45:00+10:30",
				"2026-04-05T02:00:00+10:30"}},
		"Lord Howe, each quarter of an hour, forward": {"*/15 * * * *", "Australia/Lord_Howe",
			"2026-10-03T15:15:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00"}},
		"Beirut, where midnight is left out": {"@daily", "Asia/Beirut", "2026-03-28T00:00:00Z",
			[]string{"2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"}},
		"Beirut, every hour of that day only": {"0 * 29 3 *", "Asia/Beirut", "2026-03-28T00:00:00Z",
			[]string{"2026-03-29T01:00:00+03:00", "2026-03-29T02:00:00+03:00"}},
		"Apia, where a day was left out": {"0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00",
				"2011-12-31T12:00:00+14:00"}},
		"no daylight saving": {"30 2 * * *", "UTC", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"}},
		"29 February": {"0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z",
			[]string{"2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := byCron(t, c.cron, c.zone)
			zone, err := time.LoadLocation(c.zone)
			require.NoError(t, err)
			var got []string
			for _, tick := range table.Upcoming(at(t, c.from), len(c.want)) {
				require.Equal(t, time.UTC, tick.Location(), name)
				got = append(got, tick.In(zone).Format(time.RFC3339))
			}
			require.Equal(t, c.want, got, name)
		})
	}
}

var (
	someZones = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
		"Asia/Beirut", "Africa/Cairo", "Asia/Kathmandu", "America/St_Johns"}
	someCrons = []string{"* * * * *", "*/7 * * * *", "30 * * * *", "@hourly", "@daily",
		"30 2 * * *", "*/10 1-3 * * *", "0 */5 * * *", "5,35 0,23 * * 0,6", "0 2 29,30 3,10,11 *"}
)

// A walk through all minutes gives the same ticks: a time of the day ticks once a day, and an
// hourly expression ticks at every matching moment.
func TestAgainstEveryMinute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		zoneName, expression := rapid.SampledFrom(someZones).Draw(r,
			"zone"), rapid.SampledFrom(someCrons).Draw(r, "cron")
		zone, err := time.LoadLocation(zoneName)
		require.NoError(r, err)
		table := byCron(t, expression, zoneName)
		begin := time.Unix(rapid.Int64Range(1767225600, 1830297600).Draw(r, "from"),
			0).UTC().Truncate(time.Minute)
		if _, end := begin.In(zone).ZoneBounds(); !end.IsZero() &&
			rapid.Bool().Draw(r, "near a change") {
			begin = end.UTC().Truncate(time.Minute).Add(-time.Duration(rapid.IntRange(0,
				600).Draw(r, "before")) * time.Minute)
		}
		const minutes = 2000
		want := walk(table.rule.(clockTimes), begin, minutes)
		tick, got := begin, []time.Time{}
		for range want {
			tick = table.Next(tick)
			got = append(got, tick)
		}
		require.Equal(r, want, got)
		require.False(r, table.Next(tick).Before(begin.Add(minutes*time.Minute)))
	})
}

// walk finds the ticks minute by minute. It starts with the latest local time of the day
// before: a time that the clocks showed then doesn't tick again.
func walk(c clockTimes, begin time.Time, minutes int) []time.Time {
	ticks := []time.Time{}
	latest := time.Time{}
	for m := -1440; m < minutes; m++ {
		now := begin.Add(time.Duration(m) * time.Minute)
		shows := asUTC(now.In(c.zone))
		tick := c.spec.Next(shows.Add(-1)).Equal(shows)
		if !c.hourly {
			tick = !latest.IsZero() && shows.After(latest) && !c.spec.Next(latest).After(shows)
		}
		if tick && m > 0 {
			ticks = append(ticks, now)
		}
		if shows.After(latest) {
			latest = shows
		}
	}
	return ticks
}

// The next tick is the same from wherever it is computed: none is skipped or repeated.
func TestNextFromAnyMoment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := asyncflow.Schedule{Cron: rapid.SampledFrom(someCrons).Draw(r, "cron"),
			TimeZone: rapid.SampledFrom(someZones).Draw(r, "zone")}
		created := time.UnixMicro(rapid.Int64Range(1767225600e6, 1830297600e6).Draw(r, "created"))
		if rapid.Bool().Draw(r, "every") {
			s = asyncflow.Schedule{Every: asyncflow.NewDuration(time.Second * time.Duration(
				rapid.IntRange(1, 100000).Draw(r, "seconds")))}
			if rapid.Bool().Draw(r, "starts") {
				s.StartsAt = created.Add(-time.Duration(rapid.Int64Range(0, 1e15).Draw(r,
					"started")))
			}
		}
		table, err := New(s, created)
		require.NoError(r, err)
		ticks := table.Upcoming(created, 20)
		require.Len(r, ticks, 20)
		require.True(r, slices.IsSortedFunc(ticks, time.Time.Compare))
		require.True(r, ticks[0].After(created))
		for i, tick := range ticks[1:] {
			gap := tick.Sub(ticks[i])
			require.Positive(r, gap)
			require.Zero(r, tick.Nanosecond())
			between := ticks[i].Add(time.Duration(rapid.Int64Range(0, int64(gap)-1).Draw(r,
				"between")))
			require.Equal(r, tick, table.Next(between))
		}
		for _, n := range []int{1, 5, 20, 100} {
			require.Equal(r, ticks[20-min(n, 20):], table.Latest(ticks[0], ticks[19], n))
			require.Equal(r, ticks[19-min(n, 19):19], table.Latest(ticks[0], ticks[19].Add(-1), n))
		}
	})
}
