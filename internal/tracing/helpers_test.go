package tracing_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/otlptest"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

// patience bounds the wait for an event, which ends with the event.
const patience = 2 * time.Minute

// setEnv sets variables of the process, as exporters read them.
func setEnv(t testing.TB, all map[string]string) {
	for name, value := range all {
		t.Setenv(name, value)
	}
}

// env reads variables of a map.
func env(all map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := all[name]
		return value, set
	}
}

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start starts a tracer that exports to a receiver, with further variables.
func start(t testing.TB, r *otlptest.Receiver, more map[string]string) (*tracing.Tracer, *lines) {
	t.Helper()
	all := map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
		"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL}
	for name, value := range more {
		all[name] = value
	}
	setEnv(t, all)
	log := &lines{}
	tracer, err := tracing.Start(t.Context(), tracing.Config{Env: env(all),
		Secret: []byte("secret"), Version: "test", Node: "node-1",
		PerTenant: tracing.DefaultPerTenant, Log: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	require.NotNil(t, tracer)
	t.Cleanup(func() { stop(tracer, time.Second) })
	return tracer, log
}

// stop stops a tracer, within a time.
func stop(t *tracing.Tracer, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	t.Stop(ctx)
}
