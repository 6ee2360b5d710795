package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncflow/asyncflow"
)

// attemptIDs returns the ids of the span of an attempt, which is the first of its trace. Every node
// with the same secret knows them, so they need not be stored. Other installations use others. All
// that is hashed fits mostly into one block of SHA-256, 55 bytes: a second one costs as much again.
func (t *Tracer) attemptIDs(
	tenant string, id asyncflow.TaskID, seq int,
) (in trace.TraceID, own trace.SpanID) {
	text := append(append(make([]byte, 0, 160), t.key[:]...), tenant...)
	text = id.Append(append(text, ' '))
	text = strconv.AppendInt(append(text, ' '), int64(seq), 10)
	sum := sha256.Sum256(text)
	copy(in[:], sum[:16])
	copy(own[:], sum[16:24])
	return in, own
}

// newTraceID returns 127 random bits, and one that is set: an id is never zero. That is the last
// bit, which the sampler of a ratio doesn't look at. Trace ids tell traces apart and need not be
// secret.
func newTraceID() (id trace.TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

func newSpanID() (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// sampledContext is the context of a span that is recorded.
func sampledContext(in trace.TraceID, own trace.SpanID) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: in, SpanID: own,
		TraceFlags: trace.FlagsSampled})
}

type chosenKey struct{}

// chosenIDs makes the SDK take the ids that were chosen when the span began.
type chosenIDs struct{}

func (chosenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	own, _ := ctx.Value(chosenKey{}).(trace.SpanContext)
	return own.TraceID(), own.SpanID()
}

func (chosenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	own, _ := ctx.Value(chosenKey{}).(trace.SpanContext)
	return own.SpanID()
}

const (
	// maxParent and maxState bound the headers that are read, in bytes. The second is what a
	// tracestate must at least be able to hold (W3C Trace Context, 3.3.1.5).
	maxParent = 128
	maxState  = 512
)

// readContext returns the span context of a traceparent and a tracestate. It is not valid if there
// is none, or if the traceparent can't be read.
func readContext(parent, state string) trace.SpanContext {
	if parent == "" || len(parent) > maxParent {
		return trace.SpanContext{}
	}
	headers := propagation.MapCarrier{"traceparent": parent}
	if len(state) <= maxState {
		headers["tracestate"] = state
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), headers)
	return trace.SpanContextFromContext(ctx)
}

// traceparent returns a span context as a W3C traceparent.
func traceparent(c trace.SpanContext) string {
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" +
		(c.TraceFlags() & trace.FlagsSampled).String()
}
