package asyncflow_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const year = 365 * 24 * time.Hour

// names draws names that CheckName accepts.
var names = rapid.StringMatching(`[a-z][a-z0-9_-]{0,39}`)

// pipeline returns a valid task type of three stages with different rules.
func pipeline() asyncflow.TaskType {
	return asyncflow.TaskType{
		Name:          "thumbnails",
		Version:       1,
		ScheduleLimit: 200,
		RollRows:      1000,
		MaxSteps:      100,
		RollAge:       asyncflow.NewDuration(time.Hour),
		Retention:     asyncflow.NewDuration(time.Hour),
		Stages: []asyncflow.Stage{
			stage("inspect", 0, asyncflow.RetryPolicy{MaxAttempts: 3,
				Interval: asyncflow.Seconds(60)}),
			stage("resize", 10, asyncflow.RetryPolicy{MaxAttempts: 3,
				Interval: asyncflow.Seconds(-5)}),
			stage("report", 20, asyncflow.RetryPolicy{MaxAttempts: 3,
				Interval: asyncflow.Seconds(7, 8)}),
		},
	}
}

func stage(name string, priority int, retry asyncflow.RetryPolicy) asyncflow.Stage {
	return asyncflow.Stage{
		Name:              name,
		Timeout:           asyncflow.NewDuration(10 * time.Second),
		MaxProcessingTime: asyncflow.NewDuration(time.Minute),
		Retry:             retry,
		Priority:          priority,
		MaxSnooze:         asyncflow.NewDuration(time.Hour),
	}
}

// requireRefusal checks that err is an Error of the code that says exactly this
// to the caller; an empty detail wants no error at all.
func requireRefusal(t require.TestingT, err error, code asyncflow.Code, detail string) {
	if detail == "" {
		require.NoError(t, err)
		return
	}
	var e *asyncflow.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, detail, e.Detail())
	require.Equal(t, code, e.Code)
}

// decode reads a JSON document into a T.
func decode[T any](doc string) (T, error) {
	var v T
	err := json.Unmarshal([]byte(doc), &v)
	return v, err
}

// requireRoundTrip checks that v is written as JSON and read back the same.
func requireRoundTrip[T any](t require.TestingT, v T) {
	doc, err := json.Marshal(v)
	require.NoError(t, err)
	back, err := decode[T](string(doc))
	require.NoError(t, err)
	require.Equal(t, v, back)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// parallel runs check as a parallel subtest for each entry of a table.
func parallel[C any](t *testing.T, table map[string]C, check func(*testing.T, C)) {
	t.Parallel()
	for name, c := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, c)
		})
	}
}
