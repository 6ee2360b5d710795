package asyncflow_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestLogAttempt(t *testing.T) {
	t.Parallel()
	logged := func(level slog.Level, o asyncflow.Outcome) string {
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: level,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))
		asyncflow.LogAttempt(log, "acme", asyncflow.Settlement{
			Lease:   asyncflow.Lease{ID: asyncflow.NewTaskID("thumbnails", 1, 42), Stage: "resize", Attempt: 2},
			Outcome: o,
			Verdict: asyncflow.Verdict{Kind: asyncflow.Retry},
		})
		return out.String()
	}
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Duration: 12345678 * time.Nanosecond}
	failed := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500, Error: "boom\nlevel=ERROR", Duration: time.Second}

	require.Equal(t, "level=INFO msg=attempt tenant=acme task=thumbnails.1.42 stage=resize attempt=2 outcome=done verdict=retry status=200 duration=12.35ms\n",
		logged(slog.LevelInfo, done))
	require.Equal(t, "level=WARN msg=attempt tenant=acme task=thumbnails.1.42 stage=resize attempt=2 outcome=failed verdict=retry status=500 duration=1s"+
		` error="boom\nlevel=ERROR"`+"\n", logged(slog.LevelWarn, failed), "one line, whatever the worker said")
	require.Empty(t, logged(slog.LevelWarn, done))
	require.Empty(t, logged(slog.LevelError, failed))
}
