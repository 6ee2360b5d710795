package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/asyncflow/asyncflow/internal/coalesce"
	"github.com/asyncflow/asyncflow/store"
)

// Metrics are the metrics of one node. It is the Meter of the node's store.
type Metrics struct {
	*types
	registry *prometheus.Registry
}

// New returns the metrics of a node of a version. It reads no database until Watch is called.
func New(version string) *Metrics {
	m := &Metrics{types: newTypes(), registry: prometheus.NewRegistry()}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "asyncflow_build_info",
		Help: "1, with the version of the program.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(build, m.submitted, m.attempts, m.finished, m.expired,
		m.durations, m.waits, m.turnarounds,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watch adds the metrics of a store: its pools, and the figures from its database.
func (m *Metrics) Watch(s *store.Store) {
	m.registry.MustRegister(&poolCollector{s}, newDatabase(s, m.types))
	stale := prometheus.GaugeOpts{Name: "asyncflow_stale_tenants",
		Help: "Tenants whose configuration this node can't read; their last one stays in use."}
	m.registry.MustRegister(prometheus.NewGaugeFunc(stale, func() float64 {
		return float64(s.Catalog.Stale())
	}))
}

// InFlight adds the number of tasks in flight on the node, and how many there may be.
func (m *Metrics) InFlight(n func() int, most int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "asyncflow_in_flight_tasks",
		Help: "Tasks that this node has leased and not settled.",
	}, func() float64 { return float64(n()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "asyncflow_in_flight_tasks_max",
		Help: "The most tasks that this node has in flight.",
	}, func() float64 { return float64(most) }))
}

// Spans adds the numbers of spans of the node since its start, as tracing.Tracer counts them.
func (m *Metrics) Spans(counts func() (exported, dropped, failed, over uint64)) {
	add := func(name, help string, n func() uint64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(n()) }))
	}
	add("asyncflow_spans_exported_total", "Spans that the receiver of traces has taken.",
		func() uint64 { exported, _, _, _ := counts(); return exported })
	add("asyncflow_spans_dropped_total", "Spans that were dropped because the queue was full.",
		func() uint64 { _, dropped, _, _ := counts(); return dropped })
	add("asyncflow_spans_failed_total", "Spans that the receiver of traces did not take.",
		func() uint64 { _, _, failed, _ := counts(); return failed })
	add("asyncflow_spans_over_limit_total",
		"Spans that were not recorded because of --trace-limit.",
		func() uint64 { _, _, _, over := counts(); return over })
}

// gatherTime bounds a reading of all metrics. Each reading of the database has a bound of its own.
const gatherTime = 2 * readTime

// Handler answers with the metrics, in text. Metrics that can't be read are left out. Callers
// share a reading of them: they prove nothing, and a reading costs time and memory.
func (m *Metrics) Handler() http.Handler {
	pages := coalesce.New(gatherTime, m.page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, err := pages.Get(r.Context())
		if err != nil {
			http.Error(w, "the metrics can't be read", http.StatusServiceUnavailable)
			return
		}
		page.write(w, r)
	})
}

// page returns all metrics at this moment.
func (m *Metrics) page(context.Context) (*page, error) {
	families, err := m.registry.Gather()
	if len(families) == 0 && err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, textFormat)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return nil, err
		}
	}
	return newPage(text.Bytes()), nil
}

// textFormat is Prometheus' text format.
var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// page is the metrics at a moment, as they are sent to all who asked for them then.
type page struct {
	text []byte
	gzip func() []byte // of the text; made when the first caller accepts it
}

func newPage(text []byte) *page {
	return &page{text: text, gzip: sync.OnceValue(func() []byte {
		var short bytes.Buffer
		w, _ := gzip.NewWriterLevel(&short, gzip.BestSpeed) // a level that exists
		_, _ = w.Write(text)                                // a buffer takes all
		_ = w.Close()
		return short.Bytes()
	})}
}

// write answers with the page, compressed if the caller accepts that.
func (p *page) write(w http.ResponseWriter, r *http.Request) {
	body := p.text
	w.Header().Set("Content-Type", string(textFormat))
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		body = p.gzip()
	}
	_, _ = w.Write(body) // an error means that the caller is gone
}

// acceptsGzip reports whether a value of Accept-Encoding names gzip.
func acceptsGzip(header string) bool {
	for one := range strings.SplitSeq(header, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(one), ";")
		if name == "gzip" {
			return strings.TrimSpace(quality) != "q=0"
		}
	}
	return false
}
