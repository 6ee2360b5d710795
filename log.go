package asyncflow

import (
	"context"
	"log/slog"
	"time"
)

// LogAttempt logs an attempt in one line. A failed callback is an outcome, not an error: it is
// logged as a warning.
func LogAttempt(log *slog.Logger, tenant string, s Settlement) {
	level := slog.LevelInfo
	if s.Outcome.Error != "" && !s.Snoozes() {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs,
		slog.String("tenant", tenant),
		slog.String("task", s.Lease.ID.String()),
		slog.String("stage", s.Lease.Stage),
		slog.Int("attempt", s.Lease.Attempt),
		slog.String("outcome", string(s.Outcome.Kind)),
		slog.String("verdict", string(s.Verdict.Kind)),
		slog.Duration("duration", s.Outcome.Duration.Round(10*time.Microsecond)))
	if s.Outcome.Status != 0 {
		attrs = append(attrs, slog.Int("status", s.Outcome.Status))
	}
	if s.Outcome.Error != "" {
		attrs = append(attrs, slog.String("error", s.Outcome.Error))
	}
	l := &s.Lease.Options.Labels
	if !l.IsZero() {
		attrs = append(attrs, l.attrs()...)
	}
	if id := s.Outcome.AttemptTrace; id != "" {
		if l.Trace == "" {
			attrs = append(attrs, slog.String("trace_id", id))
		}
		attrs = append(attrs, slog.String("attempt_trace_id", id))
	}
	log.LogAttrs(ctx, level, "attempt", attrs...)
}
