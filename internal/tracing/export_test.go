package tracing_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/otlptest"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

// record makes n spans.
func record(t *tracing.Tracer, n int) {
	for range n {
		t.Begin(tracing.Request{Method: "GET", Route: "/", Tenant: "acme"}).End(200, "")
	}
}

// A receiver that doesn't answer costs neither time nor memory: the queue is bounded, and what has
// no room is counted, and said once.
func TestSlowReceiver(t *testing.T) {
	asked := make(chan struct{}, 1000)
	answer := make(chan struct{})
	r := otlptest.Start(t, func() int {
		asked <- struct{}{}
		<-answer
		return 0
	})
	tracer, log := start(t, r, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "100",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100", "OTEL_BSP_SCHEDULE_DELAY": "1"})
	defer close(answer)
	record(tracer, 10)
	<-asked // an export is under way
	record(tracer, 1000)
	exported, dropped, failed := tracer.Counts()
	assert.EqualValues(t, 910, dropped)
	assert.Zero(t, exported+failed)
	assert.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("spans are dropped")))
}

// A node that stops waits a bounded time for its last export.
func TestStopIsBounded(t *testing.T) {
	ended := make(chan struct{})
	r := otlptest.Start(t, func() int {
		<-ended
		return http.StatusServiceUnavailable
	})
	tracer, log := start(t, r, nil)
	defer close(ended)
	record(tracer, 10)
	begun := time.Now()
	stop(tracer, 100*time.Millisecond)
	assert.Less(t, time.Since(begun), patience)
	assert.Contains(t, log.String(), "the last spans are not exported")
}

// Spans that a receiver refuses are counted, and the log says why.
func TestRefusingReceiver(t *testing.T) {
	r := otlptest.Start(t, func() int { return http.StatusForbidden })
	tracer, log := start(t, r, nil)
	record(tracer, 7)
	stop(tracer, patience)
	_, dropped, failed := tracer.Counts()
	assert.EqualValues(t, 7, failed)
	assert.Zero(t, dropped)
	assert.Contains(t, log.String(), "can't export spans")
	assert.Contains(t, log.String(), "403")
}

// Spans go by gRPC, too.
func TestGRPC(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, _ := start(t, r, map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_EXPORTER_OTLP_ENDPOINT": r.GRPC})
	record(tracer, 3)
	stop(tracer, patience)
	require.Len(t, r.Spans(), 3)
	assert.Equal(t, "asyncflow", r.Service()["service.name"])
	exported, _, _ := tracer.Counts()
	assert.EqualValues(t, 3, exported)
}

// The exporter console writes spans as JSON.
func TestConsole(t *testing.T) {
	var out bytes.Buffer
	tracer, err := tracing.Start(t.Context(), tracing.Config{Console: &out,
		Env: env(map[string]string{"OTEL_TRACES_EXPORTER": "console"}),
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	record(tracer, 1)
	stop(tracer, patience)
	assert.Contains(t, out.String(), `"Name":"GET /"`)
}
