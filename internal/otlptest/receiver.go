// Package otlptest is a receiver of spans by OTLP over HTTP and gRPC, for tests: what a collector
// is for a node.
package otlptest

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// patience bounds the wait for spans, which ends when they are there.
const patience = 2 * time.Minute

// Receiver keeps the spans that it gets.
type Receiver struct {
	URL     string // of the receiver over HTTP
	GRPC    string // of the one over gRPC
	t       testing.TB
	changed chan struct{} // gets an entry if spans came

	mu      sync.Mutex
	spans   []Span
	service map[string]string
	header  http.Header
	collector.UnimplementedTraceServiceServer
}

// Span is a span as it came. Ids are in hexadecimal; "": there is none.
type Span struct {
	Name, Kind, Trace, ID, Parent, State string

	Links      []Link
	Attributes map[string]string
	Failed     bool
	Start, End time.Time
}

// Link is a link of a span.
type Link struct{ Trace, ID string }

// Link returns the link to the span.
func (s Span) Link() Link { return Link{s.Trace, s.ID} }

// Start starts a receiver for a test. It calls before with each request over HTTP, and answers with
// the status that before returns, unless that is 0. before may be nil.
func Start(t testing.TB, before func() int) *Receiver {
	t.Helper()
	r := &Receiver{t: t, changed: make(chan struct{}, 1), service: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if before != nil {
			if status := before(); status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		r.serve(w, q)
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	collector.RegisterTraceServiceServer(rpc, r)
	go func() { _ = rpc.Serve(l) }()
	t.Cleanup(rpc.Stop)
	r.GRPC = "http://" + l.Addr().String()
	return r
}

// serve takes an export over HTTP, as OTLP specifies it.
func (r *Receiver) serve(w http.ResponseWriter, q *http.Request) {
	in, err := read(q)
	if err != nil {
		r.t.Errorf("a bad export: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.header = q.Header
	r.mu.Unlock()
	out, _ := r.Export(q.Context(), in)
	text, _ := proto.Marshal(out)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(text)
}

func read(q *http.Request) (*collector.ExportTraceServiceRequest, error) {
	if q.Method != http.MethodPost || q.URL.Path != "/v1/traces" ||
		q.Header.Get("Content-Type") != "application/x-protobuf" {
		return nil, fmt.Errorf("%s %s has headers %v", q.Method, q.URL, q.Header)
	}
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	in := &collector.ExportTraceServiceRequest{}
	return in, proto.Unmarshal(text, in)
}

// Export takes an export over gRPC.
func (r *Receiver) Export(
	_ context.Context, in *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range in.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			r.service[a.Key] = textOf(a.Value)
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, spanOf(s))
			}
		}
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func spanOf(s *otlp.Span) Span {
	out := Span{Name: s.Name, Kind: s.Kind.String(), Trace: hex.EncodeToString(s.TraceId),
		ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		State: s.TraceState, Attributes: map[string]string{},
		Failed: s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR,
		Start:  time.Unix(0, int64(s.StartTimeUnixNano)),
		End:    time.Unix(0, int64(s.EndTimeUnixNano))}
	for _, a := range s.Attributes {
		out.Attributes[a.Key] = textOf(a.Value)
	}
	for _, l := range s.Links {
		out.Links = append(out.Links,
			Link{hex.EncodeToString(l.TraceId), hex.EncodeToString(l.SpanId)})
	}
	return out
}

func textOf(v *common.AnyValue) string {
	if n, ok := v.Value.(*common.AnyValue_IntValue); ok {
		return strconv.FormatInt(n.IntValue, 10)
	}
	return v.GetStringValue()
}

// Spans returns the spans that came, in the order in which they came.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Await waits until enough accepts the spans that came, and returns them.
func (r *Receiver) Await(enough func(all []Span) bool) []Span {
	r.t.Helper()
	late := time.After(patience)
	for {
		all := r.Spans()
		if enough(all) {
			return all
		}
		select {
		case <-r.changed:
		case <-late:
			r.t.Fatalf("these spans have come, and no more:\n%+v", all)
		}
	}
}

// Service returns the attributes of the service that sends spans.
func (r *Receiver) Service() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.service
}

// Header returns the headers of the last request over HTTP.
func (r *Receiver) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header
}
