package asyncflow_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestLogAttempt(t *testing.T) {
	t.Parallel()
	// logged returns the attributes of the one line of an attempt, nil for none.
	logged := func(level slog.Level, o asyncflow.Outcome) (line map[string]any) {
		var out bytes.Buffer
		asyncflow.LogAttempt(slog.New(slog.NewJSONHandler(&out,
			&slog.HandlerOptions{Level: level})), "acme", asyncflow.Settlement{
			Lease: asyncflow.Lease{ID: asyncflow.NewTaskID("thumbnails", 1, 42),
				Stage: "resize", Attempt: 2},
			Outcome: o,
			Verdict: asyncflow.Verdict{Kind: asyncflow.Retry},
		})
		if out.Len() > 0 {
			require.NoError(t, json.Unmarshal(out.Bytes(), &line))
			delete(line, slog.TimeKey)
		}
		return line
	}
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200,
		Duration: 12345678 * time.Nanosecond}
	failed := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no answer within 10s",
		Duration: 10 * time.Second}

	require.Equal(t, map[string]any{
		"level": "INFO", "msg": "attempt", "tenant": "acme", "task": "thumbnails.1.42",
		"stage":   "resize",
		"attempt": 2.0,
		"outcome": "done", "verdict": "retry", "status": 200.0, "duration": 12.35e6,
	}, logged(slog.LevelInfo, done))
	require.Equal(t, map[string]any{
		"level": "WARN", "msg": "attempt", "tenant": "acme", "task": "thumbnails.1.42",
		"stage":   "resize",
		"attempt": 2.0,
		"outcome": "failed", "verdict": "retry", "error": "no answer within 10s", "duration": 10e9,
	}, logged(slog.LevelWarn, failed))
	require.Nil(t, logged(slog.LevelWarn, done))
	require.Nil(t, logged(slog.LevelError, failed))
}

// The line of an attempt carries the labels of the task, and the id of its trace by the name that
// log pipelines know.
func TestLogAttemptWithLabels(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := asyncflow.Settlement{Lease: asyncflow.Lease{ID: asyncflow.NewTaskID("mail", 1, 42)}}
	s.Lease.Options.Labels = asyncflow.Labels{User: "ada", Tags: []string{"eu", "nightly"},
		Metadata: map[string]string{"order": "4711"},
		Trace:    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	asyncflow.LogAttempt(slog.New(slog.NewJSONHandler(&out, nil)), "acme", s)
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, []any{"ada", []any{"eu", "nightly"}, map[string]any{"order": "4711"},
		"4bf92f3577b34da6a3ce929d0e0e4736"},
		[]any{line["user"], line["tags"], line["metadata"], line["trace_id"]})
	require.NotContains(t, line, "attempt_trace_id")
}

// The line of an attempt that is recorded names the trace of the attempt, beside that of the task.
func TestLogAttemptThatIsRecorded(t *testing.T) {
	t.Parallel()
	for trace, want := range map[string]string{
		"": "8f2c1d0e5b7a49c3a1f06de2b4c8d913",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "4bf92f3577b34da6a3ce929d0e0e4736",
	} {
		var out bytes.Buffer
		s := asyncflow.Settlement{Lease: asyncflow.Lease{ID: asyncflow.NewTaskID("mail", 1, 42)},
			Outcome: asyncflow.Outcome{AttemptTrace: "8f2c1d0e5b7a49c3a1f06de2b4c8d913"}}
		s.Lease.Options.Trace = trace
		asyncflow.LogAttempt(slog.New(slog.NewJSONHandler(&out, nil)), "acme", s)
		var line map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &line))
		require.Equal(t, want, line["trace_id"])
		require.Equal(t, "8f2c1d0e5b7a49c3a1f06de2b4c8d913", line["attempt_trace_id"])
	}
}
