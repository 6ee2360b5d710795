package asyncflow_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestTaskTypeValidate(t *testing.T) {
	type change = func(*asyncflow.TaskType)
	stage1 := func(f func(*asyncflow.Stage)) change {
		return func(tt *asyncflow.TaskType) {
			f(&tt.Stages[1])
		}
	}
	retry := func(p asyncflow.RetryPolicy) change {
		return stage1(func(s *asyncflow.Stage) {
			s.Retry = p
		})
	}
	interval := func(i ...float64) change {
		return retry(asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(i...)})
	}
	timeout := func(d time.Duration) change {
		return stage1(func(s *asyncflow.Stage) { s.Timeout = asyncflow.NewDuration(d) })
	}
	processing := func(d time.Duration) change {
		return stage1(func(s *asyncflow.Stage) { s.MaxProcessingTime = asyncflow.NewDuration(d) })
	}
	priority := func(n int) change { return stage1(func(s *asyncflow.Stage) { s.Priority = n }) }
	every := func(d time.Duration) change {
		return func(tt *asyncflow.TaskType) { tt.ScheduleInterval = asyncflow.NewDuration(d) }
	}
	limit := func(n int) change { return func(tt *asyncflow.TaskType) { tt.ScheduleLimit = n } }
	stages := func(n int) change {
		return func(tt *asyncflow.TaskType) {
			one := tt.Stages[0]
			tt.Stages = nil
			for i := range n {
				one.Name = fmt.Sprintf("s%d", i)
				tt.Stages = append(tt.Stages, one)
			}
		}
	}

	parallel(t, map[string]struct {
		change change
		want   string
	}{
		"valid":   {func(*asyncflow.TaskType) {}, ""},
		"no name": {func(tt *asyncflow.TaskType) { tt.Name = "" }, "name is required"},
		"long name": {func(tt *asyncflow.TaskType) { tt.Name = strings.Repeat("a", 41) },
			"name is 41 characters long; the limit is 40"},
		"no stages":  {stages(0), "stages has 0 entries; it must have 1 to 50"},
		"50 stages":  {stages(50), ""},
		"51 stages":  {stages(51), "stages has 51 entries; it must have 1 to 50"},
		"limit 0":    {limit(0), "schedule_limit is 0; it must be 1 to 1000"},
		"limit 1":    {limit(1), ""},
		"limit 1000": {limit(1000), ""},
		"limit 1001": {limit(1001), "schedule_limit is 1001; it must be 1 to 1000"},
		"roll 999": {func(tt *asyncflow.TaskType) { tt.RollRows = 999 },
			"roll_rows is 999; it must be 1000 to 1000000000"},
		"roll age": {func(tt *asyncflow.TaskType) { tt.RollAge = asyncflow.NewDuration(1) },
			"roll_age is 1ns; it must be 1m to 87600h"},
		"retention": {func(tt *asyncflow.TaskType) {
			tt.Retention = asyncflow.NewDuration(time.Second)
		}, "retention is 1s; it must be 1m to 87600h"},
		"interval -1ns":  {every(-1), "schedule_interval is -1ns; it must be 0s to 24h"},
		"interval 0":     {every(0), ""},
		"interval a day": {every(24 * time.Hour), ""},
		"interval more": {every(24*time.Hour + 1),
			"schedule_interval is 24h0m0.000000001s; it must be 0s to 24h"},

		"stage name": {stage1(func(s *asyncflow.Stage) { s.Name = "Resize" }),
			"stages[1].name must start with a lower-case letter"},
		"stage name twice": {stage1(func(s *asyncflow.Stage) { s.Name = "inspect" }),
			`stages[1].name is "inspect", which an earlier stage has`},
		"timeout short": {timeout(99 * time.Millisecond),
			"stages[1].timeout is 99ms; it must be 100ms to 1h"},
		"timeout least": {timeout(100 * time.Millisecond), ""},
		"timeout most":  {timeout(time.Hour), ""},
		"timeout long": {timeout(2 * time.Hour),
			"stages[1].timeout is 2h; it must be 100ms to 1h"},
		"timeout negative": {timeout(-time.Hour),
			"stages[1].timeout is -1h; it must be 100ms to 1h"},
		"processing short": {processing(99 * time.Millisecond),
			"stages[1].max_processing_time is 99ms; it must be 100ms to 720h"},
		"processing most": {processing(720 * time.Hour), ""},
		"processing long": {processing(721 * time.Hour),
			"stages[1].max_processing_time is 721h; it must be 100ms to 720h"},
		"priority negative": {priority(-1),
			"stages[1].priority is -1; it must be 0 to 31536000 seconds (a year)"},
		"priority a year": {priority(31536000), ""},
		"priority more": {priority(31536001),
			"stages[1].priority is 31536001; it must be 0 to 31536000 seconds (a year)"},

		"attempts negative": {retry(asyncflow.RetryPolicy{MaxAttempts: -1,
			Interval: asyncflow.Seconds(1)}),
			"stages[1].retry.max_attempts is -1; it must be 1 to 100"},
		"attempts 1": {retry(asyncflow.RetryPolicy{MaxAttempts: 1,
			Interval: asyncflow.Seconds(1)}), ""},
		"attempts 100": {retry(asyncflow.RetryPolicy{MaxAttempts: 100,
			Interval: asyncflow.Seconds(1)}), ""},
		"attempts 101": {retry(asyncflow.RetryPolicy{MaxAttempts: 101,
			Interval: asyncflow.Seconds(1)}),
			"stages[1].retry.max_attempts is 101; it must be 1 to 100"},
		"pause 0": {interval(0),
			"stages[1].retry.interval must not be 0: n > 0 doubles up to n, n < 0 is always |n|"},
		"pause a year":        {interval(31536000), ""},
		"pause always a year": {interval(-31536000), ""},
		"pause more": {interval(31536001),
			"stages[1].retry.interval is 3.1536001e+07 seconds; the limit is 31536000 (a year)"},
		"pause less": {interval(-31536001),
			"stages[1].retry.interval is -3.1536001e+07 seconds; the limit is 31536000 (a year)"},
		"pause infinite": {interval(math.Inf(1)),
			"stages[1].retry.interval is +Inf seconds; the limit is 31536000 (a year)"},
		"pauses": {interval(1, 0, 31536000), ""},
		"pauses with a negative": {interval(1, -2),
			"stages[1].retry.interval has a negative entry -2; only a single number may be " +
				"negative"},
		"pauses with a long one": {interval(1, 31536001),
			"stages[1].retry.interval is 3.1536001e+07 seconds; the limit is 31536000 (a year)"},
		"100 pauses": {interval(make([]float64, 100)...), ""},
		"101 pauses": {interval(make([]float64, 101)...),
			"stages[1].retry.interval has 101 entries; the limit is 100"},

		"everything at once": {func(tt *asyncflow.TaskType) {
			*tt = asyncflow.TaskType{Name: "A", ScheduleLimit: -1,
				Stages: []asyncflow.Stage{{Name: "s", Priority: -1}}}
		}, "name must start with a lower-case letter" +
			"; schedule_limit is -1; it must be 1 to 1000" +
			"; roll_rows is 0; it must be 1000 to 1000000000; roll_age is 0s; it must be 1m to " +
			"87600h; retention is 0s; it must be 1m to 87600h" +
			"; stages[0].timeout is 0s; it must be 100ms to 1h" +
			"; stages[0].max_processing_time is 0s; it must be 100ms to 720h" +
			"; stages[0].max_snooze is 0s; it must be 1s to 8760h" +
			"; stages[0].priority is -1; it must be 0 to 31536000 seconds (a year)"},
	}, func(t *testing.T, c struct {
		change change
		want   string
	}) {
		tt := pipeline()
		c.change(&tt)
		requireRefusal(t, tt.Validate(), asyncflow.CodeInvalid, c.want)
	})
}

func TestWithDefaults(t *testing.T) {
	t.Parallel()
	bare := asyncflow.TaskType{Name: "a", Stages: []asyncflow.Stage{
		{Name: "first"},
		{Name: "second", Timeout: asyncflow.NewDuration(1e9),
			MaxProcessingTime: asyncflow.NewDuration(2e9),
			Priority:          5,
			Retry:             asyncflow.RetryPolicy{MaxAttempts: 2}},
	}}
	full := bare.WithDefaults()
	require.NoError(t, full.Validate())
	require.Equal(t, asyncflow.TaskType{Name: "a", ScheduleLimit: 200, RollRows: 5_000_000,
		MaxSteps:  100,
		RollAge:   asyncflow.NewDuration(30 * 24 * time.Hour),
		Retention: asyncflow.NewDuration(180 * 24 * time.Hour), Stages: []asyncflow.Stage{
			{Name: "first", Timeout: asyncflow.NewDuration(30e9),
				MaxProcessingTime: asyncflow.NewDuration(3600e9), Retry: asyncflow.DefaultRetry,
				MaxSnooze: asyncflow.NewDuration(24 * time.Hour)},
			{Name: "second", Timeout: asyncflow.NewDuration(1e9),
				MaxProcessingTime: asyncflow.NewDuration(2e9), Priority: 5,
				MaxSnooze: asyncflow.NewDuration(24 * time.Hour),
				Retry: asyncflow.RetryPolicy{MaxAttempts: 2,
					Interval: asyncflow.Seconds(3600)}},
		}}, full)
	require.Equal(t, full, full.WithDefaults(), "a second time changes nothing")
	require.Zero(t, bare.Stages[0].Timeout, "the original stays as it was")
	require.Equal(t, pipeline(), pipeline().WithDefaults(), "what is set stays")
}

func TestStages(t *testing.T) {
	t.Parallel()
	tt := pipeline()
	require.Equal(t, []string{"inspect", "resize", "report"}, tt.StageNames())
	for i, name := range tt.StageNames() {
		require.Equal(t, i, tt.StageIndex(name))
	}
	require.Equal(t, -1, tt.StageIndex("removed"))
	require.Equal(t, -1, tt.StageIndex(""))
}
