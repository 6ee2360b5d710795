package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// minutely returns a schedule of the type pipe with a tick each minute. The last tick was some
// seconds ago, so that the next one comes after the test.
func (b *bundle) minutely() asyncflow.Schedule {
	return asyncflow.Schedule{Name: "minutely", Type: "pipe",
		Context: json.RawMessage(`{"a": 1.0}`), Every: asyncflow.NewDuration(time.Minute),
		StartsAt: b.Clock.Now().Truncate(time.Second).Add(-48*time.Hour -
			3*time.Second)}.WithDefaults()
}

func (b *bundle) putSchedule(s asyncflow.Schedule) store.StoredSchedule {
	b.t.Helper()
	require.NoError(b.t, s.Validate(1000))
	stored, _, err := b.PutSchedule(b.t.Context(), tenant, s)
	require.NoError(b.t, err)
	return stored
}

func (b *bundle) schedule(name string) store.StoredSchedule {
	b.t.Helper()
	stored, err := b.Schedule(b.t.Context(), tenant, name)
	require.NoError(b.t, err)
	return stored
}

func TestPutSchedule(t *testing.T) {
	b := setupTwo(t)
	b.put(twoStages())
	s := b.minutely()
	s.Priority, s.Retry = asyncflow.Priority{60, 0},
		&asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Rule("attempt < 3 ? 1 : 2")}
	s.Every, s.Cron, s.StartsAt = asyncflow.Duration{}, "0 0 1 1 *",
		time.Date(2026, 1, 1, 1, 0, 0, 0, time.FixedZone("", 3600))
	s = s.WithDefaults()
	would, created, err := b.CheckSchedule(t.Context(), tenant, s)
	require.NoError(t, err)
	assert.True(t, created)
	assert.Equal(t, 1, would.Version)
	_, err = b.Schedule(t.Context(), tenant, s.Name)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "it was a dry run")

	first, created, err := b.PutSchedule(t.Context(), tenant, s)
	require.NoError(t, err)
	assert.True(t, created)
	want := s
	want.Version = 1
	assert.Equal(t, want, first.Schedule, "the context is the same, byte by byte")
	assert.Equal(t, time.Date(b.Clock.Now().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC),
		first.NextAt.UTC())
	again, created, err := b.PutSchedule(t.Context(), tenant, s)
	require.NoError(t, err)
	assert.False(t, created)
	assert.Equal(t, first, again, "the same again changes nothing")

	s.Context = json.RawMessage(`{"a":1.0}`)
	would, _, err = b.CheckSchedule(t.Context(), tenant, s)
	require.NoError(t, err)
	assert.Equal(t, 2, would.Version)
	assert.Equal(t, first, b.schedule(s.Name))
	changed := b.putSchedule(s)
	assert.Equal(t, 2, changed.Version)
	assert.Equal(t, `{"a":1.0}`, string(changed.Context))
	s.Cron, s.Every, s.TimeZone, s.StartsAt = "", asyncflow.NewDuration(time.Hour), "", time.Time{}
	changed = b.putSchedule(s)
	assert.Equal(t, first.CreatedAt.UTC().Truncate(time.Second).Add(time.Hour),
		changed.NextAt.UTC(), "counted from its creation, not from the change")
	s.EndsAt = first.CreatedAt
	assert.Zero(t, b.putSchedule(s).NextAt, "it is over")

	all, _, err := b.SchedulePage(t.Context(), tenant, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Nil(t, all[0].Context)
	assert.Equal(t, 4, all[0].Version)
	all, _, err = b.SchedulePage(t.Context(), "other", "", 10)
	require.NoError(t, err)
	assert.Empty(t, all)
}

func TestPutScheduleRefused(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	for field, change := range map[string]func(*asyncflow.Schedule){
		"type":      func(s *asyncflow.Schedule) { s.Type = "nope" },
		"cron":      func(s *asyncflow.Schedule) { s.Cron, s.TimeZone = "TZ=0", "UTC" },
		"time_zone": func(s *asyncflow.Schedule) { s.Cron, s.TimeZone = "@daily", "Local" },
	} {
		s := b.minutely()
		change(&s)
		for _, put := range []func() error{
			func() error { _, _, err := b.PutSchedule(t.Context(), tenant, s); return err },
			func() error { _, _, err := b.CheckSchedule(t.Context(), tenant, s); return err },
		} {
			var known *asyncflow.Error
			require.ErrorAs(t, put(), &known, field)
			require.Equal(t, field, known.Fields[0].Field)
		}
	}
	for _, call := range []func(name string) error{
		func(name string) error { return b.DeleteSchedule(t.Context(), tenant, name) },
		func(name string) error {
			_, err := b.PauseSchedule(t.Context(), tenant, name)
			return err
		},
		func(name string) error {
			_, err := b.ResumeSchedule(t.Context(), tenant, name)
			return err
		},
		func(name string) error { _, err := b.Schedule(t.Context(), tenant, name); return err },
	} {
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(call("nope")))
	}
}

// A schedule with all its times over is refused, except to end one, or to keep one that ended.
func TestScheduleThatNeverRuns(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	over := b.minutely()
	over.EndsAt = time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	refused := func(s asyncflow.Schedule) {
		t.Helper()
		var known *asyncflow.Error
		_, _, err := b.PutSchedule(t.Context(), tenant, s)
		require.ErrorAs(t, err, &known)
		require.Equal(t, "ends_at", known.Fields[0].Field)
		require.Contains(t, known.Fields[0].Message, "the schedule would never run")
	}
	refused(over)
	soon := over
	soon.EndsAt = time.Now().Add(time.Second / 2)
	soon.Cron, soon.TimeZone, soon.Every = "", "", asyncflow.NewDuration(time.Hour)
	refused(soon)

	b.putSchedule(b.minutely())
	ending, _, err := b.PutSchedule(t.Context(), tenant, over)
	require.NoError(t, err, "this ends it")
	require.Zero(t, ending.NextAt)
	over.Cron, over.Every, over.TimeZone = "1 * * * *", asyncflow.Duration{}, "UTC"
	refused(over)
	b.exec(`UPDATE tenant_acme.schedules SET next_at = NULL,
		spec = (spec::jsonb || jsonb_build_object('ends_at', '2026-01-01T00:00:00Z'))::json`)
	ended, err := b.Schedule(t.Context(), tenant, over.Name)
	require.NoError(t, err)
	ended.Context = []byte(`{"another": 1}`)
	_, _, err = b.PutSchedule(t.Context(), tenant, ended.Schedule)
	require.NoError(t, err, "another context for the same times")
}

// Of many callers that put the same schedule at once, one creates it; the others change it.
func TestScheduleCreatedAtOnce(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	schedule := b.minutely() // once: its start is given with seconds
	made := make(chan bool, 8)
	for range cap(made) {
		go func() {
			_, created, err := b.PutSchedule(t.Context(), tenant, schedule)
			assert.NoError(t, err)
			made <- created
		}()
	}
	n := 0
	for range cap(made) {
		if <-made {
			n++
		}
	}
	assert.Equal(t, 1, n)
	assert.Equal(t, 1, b.schedule("minutely").Version)
}

// A pause lasts until the resume; the ticks of the pause get no tasks, whatever the catch-up
// policy.
func TestSchedulePaused(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	s := b.minutely()
	s.CatchUp = asyncflow.CatchUpAll
	b.putSchedule(s)
	paused, err := b.PauseSchedule(t.Context(), tenant, s.Name)
	require.NoError(t, err)
	assert.NotZero(t, paused.PausedAt)
	runs, err := paused.NextRuns(b.Clock.Now(), 5)
	require.NoError(t, err)
	assert.Empty(t, runs)
	again, err := b.PauseSchedule(t.Context(), tenant, s.Name)
	require.NoError(t, err)
	assert.Equal(t, paused, again)
	s.Overlap = asyncflow.OverlapSkip
	assert.Equal(t, paused.PausedAt, b.putSchedule(s).PausedAt,
		"a change of the document is no resume")
	b.overdue(s.Name, time.Hour)
	assert.Zero(t, b.tick())
	b.submit(b.schedule(s.Name).Task()) // as somebody triggers it
	resumed, err := b.ResumeSchedule(t.Context(), tenant, s.Name)
	require.NoError(t, err)
	assert.Zero(t, resumed.PausedAt)
	assert.True(t, resumed.NextAt.After(b.Clock.Now().Add(-time.Second)))
	assert.Equal(t, resumed.NextAt.UTC(), b.schedule(s.Name).NextAt.UTC())
	runs, err = resumed.NextRuns(b.Clock.Now(), 5)
	require.NoError(t, err)
	assert.Len(t, runs, 5)
	assert.Equal(t, []string{""}, b.keys(), "the triggered one only")
	b.overdue(s.Name, time.Hour)
	_, err = b.ResumeSchedule(t.Context(), tenant, s.Name)
	require.NoError(t, err)
	assert.NotZero(t, b.tick(), "one that isn't paused is left as it is")
}

// A schedule is deleted with its task type; its tasks are not deleted with the schedule.
func TestScheduleDeleted(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.putSchedule(b.minutely())
	b.overdue("minutely", 0)
	require.Equal(t, 1, b.tick())
	require.NoError(t, b.DeleteSchedule(t.Context(), tenant, "minutely"))
	assert.Len(t, b.keys(), 1)
	leases := b.lease(pipe, 10)
	require.Len(t, leases, 1)
	b.settleAll(pipe, leases, rejected)
	b.putSchedule(b.minutely())
	err := b.DeleteTaskType(t.Context(), tenant, "pipe", false)
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	assert.ErrorContains(t, err, "task type pipe has schedules (minutely)")
	_, err = b.Schedule(t.Context(), tenant, "minutely")
	require.NoError(t, err, "it is still there")
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", true))
	_, err = b.Schedule(t.Context(), tenant, "minutely")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// A schedule of tasks that could never be submitted is refused.
func TestScheduleThatDependsOnAnUnknownType(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	s := b.minutely()
	s.DependsOn = []asyncflow.Dependency{{Type: "pipe", Key: "k"}, {Type: "nope", Key: "k"}}
	_, _, err := b.PutSchedule(t.Context(), tenant, s)
	assert.Equal(t, asyncflow.CodeDependency, asyncflow.CodeOf(err))
	assert.ErrorContains(t, err, "depends_on[1] names the task type nope, which doesn't exist")
	s.DependsOn = s.DependsOn[:1]
	b.putSchedule(s)
}
