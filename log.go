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
	if l := &s.Lease.Options.Labels; !l.IsZero() {
		attrs = append(attrs, l.attrs()...)
	}
	log.LogAttrs(ctx, level, "attempt", attrs...)
}
