package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
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
