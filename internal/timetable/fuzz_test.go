package timetable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A timetable is refused with the name of the field, or its ticks are in order, within its
// bounds, and found in bounded time from any starting time.
func FuzzTimetable(f *testing.F) {
	f.Fuzz(func(t *testing.T, cron, zone string, every, starts, ends, at int64) {
		second := func(n int64) time.Time { return time.Unix(n%(1<<36), 0).UTC() }
		s := asyncflow.Schedule{Name: "s", Type: "t", Context: []byte("1"), Cron: cron,
			TimeZone: zone, Every: asyncflow.NewDuration(time.Duration(every) * time.Second)}
		if starts != 0 {
			s.StartsAt = second(starts)
		}
		if ends != 0 {
			s.EndsAt = second(ends)
		}
		s = s.WithDefaults()
		if s.Validate(100) != nil {
			return
		}
		begin := time.Now()
		table, err := New(s, second(at))
		if err != nil {
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			return
		}
		after := second(at)
		for _, tick := range table.Upcoming(after, 5) {
			require.True(t, tick.After(after), "%v comes after %v", tick, after)
			require.Zero(t, tick.Nanosecond())
			require.False(t, !s.StartsAt.IsZero() && tick.Before(s.StartsAt))
			require.False(t, !s.EndsAt.IsZero() && !tick.Before(s.EndsAt))
			after = tick
		}
		if next := table.Next(second(at)); !next.IsZero() {
			ticks, _ := table.Due(s, next, next.Add(time.Hour))
			require.LessOrEqual(t, len(ticks), asyncflow.MaxCatchUpLimit)
			for _, tick := range ticks {
				require.False(t, tick.Before(next) || tick.After(next.Add(time.Hour)))
			}
		}
		require.Less(t, time.Since(begin), 30*time.Second, "%q in %q takes long", cron, zone)
	})
}
