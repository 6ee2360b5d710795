package tracing

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"unicode"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// newExporter returns the exporter of the settings. It connects when there is something to export.
func (s settings) newExporter(
	ctx context.Context, console io.Writer,
) (sdktrace.SpanExporter, error) {
	switch {
	case s.exporter == exporterConsole:
		return stdouttrace.New(stdouttrace.WithWriter(console))
	case s.protocol == protocolGRPC:
		var options []otlptracegrpc.Option
		if s.plain {
			options = append(options, otlptracegrpc.WithInsecure())
		}
		return otlptracegrpc.New(ctx, options...)
	}
	options := []otlptracehttp.Option{otlptracehttp.WithMaxResponseSize(maxAnswer)}
	if s.plain {
		options = append(options, otlptracehttp.WithInsecure())
	}
	return otlptracehttp.New(ctx, options...)
}

const (
	// maxAnswer bounds what is read of a receiver's answer, in bytes. A longer one fails the
	// export.
	maxAnswer = 64 << 10
	// maxErrorText bounds what goes to the log of an error, in bytes: it may be what a receiver
	// wrote.
	maxErrorText = 300
)

// errorText returns the beginning of an error in one line, without the values of the headers of
// exports: a receiver may show what it was sent.
func (s settings) errorText(err error) string {
	text := err.Error()
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// queue keeps spans until they are exported. It counts what is in it: the SDK's own queue drops
// what finds no room, and says nothing.
type queue struct {
	sdktrace.SpanProcessor // the SDK's queue, which never gets more spans than there is room for
	exporter               sdktrace.SpanExporter
	settings               settings
	waiting                atomic.Int64
	behind                 atomic.Bool // a span was dropped since the last export
	counts                 *counts
	log                    *slog.Logger
}

func newQueue(exporter sdktrace.SpanExporter, s settings, c *counts, log *slog.Logger) *queue {
	q := &queue{exporter: exporter, settings: s, counts: c, log: log}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(watchedExporter{q},
		sdktrace.WithMaxQueueSize(s.queue))
	return q
}

// OnEnd takes a span, or drops it if the queue is full. It never waits.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if q.waiting.Add(1) <= int64(q.settings.queue) {
		q.SpanProcessor.OnEnd(s)
		return
	}
	q.waiting.Add(-1)
	q.counts.dropped.Add(1)
	if q.behind.CompareAndSwap(false, true) {
		q.log.Warn("spans are dropped: the receiver of traces takes them too slowly, or not at all",
			"queue", q.settings.queue)
	}
}

// watchedExporter counts what becomes of spans.
type watchedExporter struct{ q *queue }

// ExportSpans returns no error: what fails is counted and logged here.
func (e watchedExporter) ExportSpans(
	ctx context.Context, spans []sdktrace.ReadOnlySpan,
) error {
	q := e.q
	n := len(spans)
	defer q.waiting.Add(-int64(n))
	if err := q.exporter.ExportSpans(ctx, spans); err != nil {
		q.counts.failed.Add(uint64(n))
		q.log.Warn("can't export spans", "error", q.settings.errorText(err))
		return nil
	}
	q.counts.exported.Add(uint64(n))
	q.behind.Store(false)
	return nil
}

func (e watchedExporter) Shutdown(ctx context.Context) error { return e.q.exporter.Shutdown(ctx) }
