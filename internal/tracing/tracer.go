package tracing

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// DefaultPerTenant is the default of Config.PerTenant.
const DefaultPerTenant = 200

// Config says where spans go, and how many there are.
type Config struct {
	// Env reads a variable of the environment. The exporters read the environment of the process
	// besides, for what is checked here.
	Env func(name string) (value string, set bool)
	// Secret is the node secret: ids of attempts are derived from it.
	Secret []byte
	// Version and Node name the process in the spans.
	Version, Node string
	// PerTenant bounds the spans a second that a tenant's callers cause on this node by marking
	// their traces as sampled, and a fifth of what all tenants cause so. Attempts and reports of
	// recorded submits count, whoever decided about the submit. 0: such marks don't count.
	PerTenant int
	// Console is where the exporter "console" writes.
	Console io.Writer
	Log     *slog.Logger
}

// Tracer records spans and exports them. A nil Tracer is one that is off: its methods do nothing.
type Tracer struct {
	settings settings
	key      [keySize]byte
	budget   *budget
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	counts   counts
	log      *slog.Logger
}

// keySize is the length of the key of attemptIDs, in bytes.
const keySize = 16

func keyOf(secret []byte) [keySize]byte {
	sum := sha256.Sum256(append([]byte("asyncflow traces "), secret...))
	return [keySize]byte(sum[:keySize])
}

// counts are numbers of spans since the start.
type counts struct{ exported, dropped, failed, over atomic.Uint64 }

// countOver counts a span that isn't recorded, if that is because of a budget.
func (c *counts) countOver(over bool) {
	if over {
		c.over.Add(1)
	}
}

// Start returns the tracer that the environment asks for; nil: it asks for none. Stop ends it.
func Start(ctx context.Context, cfg Config) (*Tracer, error) {
	s, err := readSettings(cfg.Env)
	if err != nil || s.exporter == "" {
		return nil, err
	}
	// The SDK reports through these what happens in the background. They belong to the process.
	otel.SetLogger(logr.FromSlogHandler(cfg.Log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		cfg.Log.Warn("tracing reports an error", "error", s.errorText(err))
	}))
	exporter, err := s.newExporter(ctx, cfg.Console)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName("asyncflow"),
			semconv.ServiceVersion(cfg.Version),
			semconv.ServiceInstanceID(cfg.Node)),
		resource.WithFromEnv())
	if err != nil {
		return nil, invalid("OTEL_RESOURCE_ATTRIBUTES", "can't be read: %v", err)
	}
	return newTracer(cfg, s, exporter, about), nil
}

func newTracer(
	cfg Config, s settings, exporter sdktrace.SpanExporter, about *resource.Resource,
) *Tracer {
	t := &Tracer{
		settings: s,
		key:      keyOf(cfg.Secret),
		budget:   newBudget(cfg.PerTenant),
		log:      cfg.Log,
	}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = s.links
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // what isn't sampled is never recorded
		sdktrace.WithIDGenerator(chosenIDs{}),
		sdktrace.WithSpanProcessor(newQueue(exporter, s, &t.counts, cfg.Log)))
	t.tracer = t.provider.Tracer("github.com/asyncflow/asyncflow/internal/tracing",
		trace.WithInstrumentationVersion(cfg.Version))
	return t
}

// Stop exports the spans that are left, until ctx ends.
func (t *Tracer) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans are not exported", "error", t.settings.errorText(err))
	}
}

// Counts returns how many spans were exported since the start, how many were dropped because the
// queue was full, how many the receiver of the spans didn't take, and how many were not recorded
// because they were over Config.PerTenant.
func (t *Tracer) Counts() (exported, dropped, failed, over uint64) {
	c := &t.counts
	return c.exported.Load(), c.dropped.Load(), c.failed.Load(), c.over.Load()
}

// span is a span that is over.
type span struct {
	name       string
	kind       trace.SpanKind
	own        trace.SpanContext // its ids
	parent     trace.SpanContext // in the same trace; not valid: there is none
	links      []trace.Link
	start, end time.Time
	attributes []attribute.KeyValue
	failure    string // the kind of failure; "": it went well
}

func (t *Tracer) record(s *span) {
	ctx := context.WithValue(context.Background(), chosenKey{}, s.own)
	if s.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s.parent)
	}
	_, made := t.tracer.Start(ctx, s.name, trace.WithSpanKind(s.kind), trace.WithTimestamp(s.start),
		trace.WithLinks(s.links...), trace.WithAttributes(s.attributes...))
	if s.failure != "" {
		made.SetAttributes(semconv.ErrorTypeKey.String(s.failure))
		made.SetStatus(codes.Error, s.failure)
	}
	made.End(trace.WithTimestamp(s.end))
}
