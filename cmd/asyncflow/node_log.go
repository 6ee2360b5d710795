package main

import (
	"log/slog"
	"time"
)

// newLog returns the log of a node, on standard error.
func newLog(g *globals, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		options.ReplaceAttr = inMilliseconds
		return slog.New(slog.NewJSONHandler(g.stderr, options))
	}
	return slog.New(slog.NewTextHandler(g.stderr, options))
}

// inMilliseconds writes a duration, such as duration, as duration_ms: JSON has none, and slog would
// write a number of nanoseconds that doesn't say so.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
}
