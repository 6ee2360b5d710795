package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A duration has a unit in either format.
func TestLogsGiveDurationsAUnit(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	newLog(&globals{stderr: &text}, "text", slog.LevelInfo).Info("x", "duration",
		1500*time.Microsecond)
	require.Contains(t, text.String(), "duration=1.5ms")

	var line bytes.Buffer
	newLog(&globals{stderr: &line}, "json", slog.LevelInfo).Info("x", "duration",
		1500*time.Microsecond)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(line.Bytes(), &fields))
	require.Equal(t, 1.5, fields["duration_ms"])
	require.NotContains(t, fields, "duration")
}

// A failure that goes on is one line of a node's log, unless the log is for debugging; a line that
// stands for one thing of its own is always written. The program still has these messages.
func TestLogsCountRepeats(t *testing.T) {
	t.Parallel()
	lines := func(level slog.Level, message string) int {
		var text bytes.Buffer
		log, stop := countRepeats(newLog(&globals{stderr: &text}, "text", level))
		for range 3 {
			log.Warn(message, "error", "away")
		}
		stop()
		return strings.Count(text.String(), "\n")
	}
	require.Equal(t, 2, lines(slog.LevelInfo, "lease failed, trying again"),
		"the first line, and the count at the end")
	require.Equal(t, 3, lines(slog.LevelDebug, "lease failed, trying again"))
	var sources strings.Builder
	for _, file := range []string{"log.go", "governance/alerts.go", "dispatcher/settle.go",
		"internal/httpapi/audit_call.go", "internal/httpapi/internal/deniedcalls/deniedcalls.go"} {
		source, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		sources.Write(source)
	}
	for _, message := range uncounted {
		require.Equal(t, 3, lines(slog.LevelInfo, message))
		require.Contains(t, sources.String(), strconv.Quote(message))
	}
}
