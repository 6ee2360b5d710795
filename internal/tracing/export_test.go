package tracing_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"

	"github.com/asyncflow/asyncflow/internal/otlptest"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

// record makes n spans.
func record(t *tracing.Tracer, n int) {
	for range n {
		t.Begin(tracing.Request{Method: "GET", Route: "/", Tenant: "acme"}).End(200, "")
	}
}

// A receiver that doesn't answer costs neither time nor memory: the queue is bounded, and what
// finds no room is counted, and said once.
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
	exported, dropped, failed, over := tracer.Counts()
	assert.EqualValues(t, 910, dropped)
	assert.Zero(t, exported+failed+over)
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
	_, dropped, failed, _ := tracer.Counts()
	assert.EqualValues(t, 7, failed)
	assert.Zero(t, dropped)
	assert.Contains(t, log.String(), "can't export spans")
	assert.Contains(t, log.String(), "403")
}

// What a receiver answers fills no log, controls no terminal and shows no token.
func TestErrorTextIsBounded(t *testing.T) {
	for _, size := range []int{2000, 1 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, q.Header.Get("Authorization")+" \x1b[31m")
				_, _ = w.Write(bytes.Repeat([]byte("é"), size/2))
			}))
			defer r.Close()
			tracer, log := start(t, &otlptest.Receiver{URL: r.URL}, map[string]string{
				"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20hunter2-hunter2"})
			record(tracer, 1)
			stop(tracer, patience)
			assert.Contains(t, log.String(), "can't export spans")
			if size < 1<<16 {
				assert.Contains(t, log.String(), "500 Internal Server Error (body: *** ")
			}
			assert.Less(t, len(log.String()), 500)
			assert.NotContains(t, log.String(), "hunter2")
			assert.NotContains(t, log.String(), "x1b")
		})
	}
}

// An error of the SDK itself is as bounded.
func TestSDKErrorTextIsBounded(t *testing.T) {
	r := otlptest.Start(t, nil)
	tracer, log := start(t, r, nil)
	otel.Handle(errors.New(strings.Repeat("x", 1<<20)))
	stop(tracer, patience)
	assert.Contains(t, log.String(), "tracing reports an error")
	assert.Less(t, len(log.String()), 500)
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
	exported, _, _, _ := tracer.Counts()
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

// Without a URL, spans go to a collector on this machine, without TLS, as the specification says.
func TestDefaultReceiver(t *testing.T) {
	tracer, log := start(t, new(otlptest.Receiver), map[string]string{
		"OTEL_EXPORTER_OTLP_TIMEOUT": "1000"})
	record(tracer, 1)
	stop(tracer, patience)
	assert.NotContains(t, log.String(), "https://", "there may be a collector, or none")
}
