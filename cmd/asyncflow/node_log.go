package main

import "log/slog"

// newLog returns the log of a node, on standard error.
func newLog(g *globals, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(g.stderr, options))
	}
	return slog.New(slog.NewTextHandler(g.stderr, options))
}
