package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// maxTypes is how many task types have labels of their own, with some 30 series each. All further
// types are counted together, with empty labels.
const maxTypes = 200

// outcomes are the outcomes of attempts that a settlement writes.
var outcomes = []asyncflow.OutcomeKind{asyncflow.OutcomeDone, asyncflow.OutcomeFailed,
	asyncflow.OutcomeRejected,
	asyncflow.OutcomeLost, asyncflow.OutcomeReleased, asyncflow.OutcomeCancelled}

// types counts the events of the tasks of each type on this node.
type types struct {
	submitted, attempts, finished *prometheus.CounterVec
	durations                     *prometheus.HistogramVec

	known sync.Map // of store.TypeKey to *typeMeter
	mu    sync.Mutex
	named int        // types with labels of their own
	rest  *typeMeter // of all further types; nil: there are none yet
}

func newTypes() *types {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Name: name, Help: help}
		return prometheus.NewCounterVec(opts, append([]string{"tenant", "type"}, labels...))
	}
	return &types{
		submitted: counter("asyncflow_submitted_tasks_total", "New tasks that this node has accepted."),
		attempts: counter("asyncflow_attempts_total",
			"Attempts whose outcome this node has written.", "outcome"),
		finished: counter("asyncflow_finished_tasks_total",
			"Tasks that became final by an attempt whose outcome this node has written.", "status"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "asyncflow_delivery_duration_seconds",
			Help:    "The time from sending to the answer, or to giving up, of deliveries.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"tenant", "type"}),
	}
}

// typeMeter has the counters of a type, with their labels.
type typeMeter struct {
	tenant, name string
	submitted    prometheus.Counter
	duration     prometheus.Observer
	attempts     map[asyncflow.OutcomeKind]prometheus.Counter
	finished     map[asyncflow.Status]prometheus.Counter
}

// Type returns the counters of a type.
func (t *types) Type(key store.TypeKey) store.TypeMeter { return t.meter(key) }

func (t *types) meter(key store.TypeKey) *typeMeter {
	if m, ok := t.known.Load(key); ok {
		return m.(*typeMeter)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.known.Load(key); ok {
		return m.(*typeMeter)
	}
	m := t.rest
	switch {
	case t.named < maxTypes:
		t.named++
		m = t.resolve(key.Tenant, key.Type)
		t.known.Store(key, m)
	case m == nil:
		m = t.resolve("", "")
		t.rest = m
	}
	return m
}

func (t *types) resolve(tenant, name string) *typeMeter {
	m := &typeMeter{
		tenant:    tenant,
		name:      name,
		submitted: t.submitted.WithLabelValues(tenant, name),
		duration:  t.durations.WithLabelValues(tenant, name),
		attempts:  map[asyncflow.OutcomeKind]prometheus.Counter{},
		finished:  map[asyncflow.Status]prometheus.Counter{},
	}
	for _, kind := range outcomes {
		m.attempts[kind] = t.attempts.WithLabelValues(tenant, name, string(kind))
	}
	for _, status := range asyncflow.Statuses {
		if status.Final() {
			m.finished[status] = t.finished.WithLabelValues(tenant, name, string(status))
		}
	}
	return m
}

// Submitted counts new tasks.
func (m *typeMeter) Submitted(n int) { m.submitted.Add(float64(n)) }

// Settled counts a settled attempt.
func (m *typeMeter) Settled(s *asyncflow.Settlement) {
	if c := m.attempts[s.Outcome.Kind]; c != nil {
		c.Inc()
	}
	if s.Outcome.Duration > 0 { // it was sent
		m.duration.Observe(s.Outcome.Duration.Seconds())
	}
	if c := m.finished[s.Verdict.Final()]; c != nil {
		c.Inc()
	}
}
