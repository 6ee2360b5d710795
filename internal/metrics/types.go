package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// maxTypes is how many task types get labels of their own, with some 50 series each, and 18 for
	// each of up to maxStages stages and for all further stages together. All further types are
	// counted together, with empty labels.
	maxTypes  = 200
	maxStages = 5
	// idleTime is how long a type without tasks keeps its labels when others need them, at least.
	idleTime = time.Hour
	// searchPause is the time after a search that found no labels to take away.
	searchPause = 10 * time.Second
)

// outcomes are the outcomes of attempts that a settlement writes.
var outcomes = []asyncflow.OutcomeKind{asyncflow.OutcomeDone, asyncflow.OutcomeFailed,
	asyncflow.OutcomeRejected, asyncflow.OutcomeSnoozed,
	asyncflow.OutcomeLost, asyncflow.OutcomeReleased, asyncflow.OutcomeCancelled}

// types counts the events of the tasks of each type on this node.
type types struct {
	submitted, attempts, finished *prometheus.CounterVec
	expired                       *prometheus.CounterVec
	durations                     *prometheus.HistogramVec
	waits, turnarounds            *prometheus.HistogramVec

	now   func() time.Time
	known sync.Map // of store.TypeKey to *typeMeter: types with labels of their own

	mu       sync.Mutex
	labelled map[store.TypeKey]*typeMeter // as known
	rest     *typeMeter                   // of all further types; nil: there are none yet
	aged     time.Time                    // when age last looked for idle types
	search   time.Time                    // when the next search for labels may be
}

func newTypes() *types {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Name: name, Help: help}
		return prometheus.NewCounterVec(opts, append([]string{"tenant", "type"}, labels...))
	}
	return &types{
		now:      time.Now,
		labelled: map[store.TypeKey]*typeMeter{},
		submitted: counter("asyncflow_submitted_tasks_total",
			"New tasks that this node has accepted."),
		attempts: counter("asyncflow_attempts_total",
			"Attempts whose outcome this node has written.", "outcome"),
		finished: counter("asyncflow_finished_tasks_total",
			"Tasks that became final by an attempt whose outcome this node has written.", "status"),
		expired: counter("asyncflow_expired_tasks_total",
			"Failed tasks that this node has ended at the end of their lifetime."),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "asyncflow_delivery_duration_seconds",
			Help:    "The time from sending to the answer, or to giving up, of deliveries.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"tenant", "type"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "asyncflow_wait_seconds",
			Help: "How long tasks were due in a stage until this node sent them, or handed them " +
				"out.",
			Buckets: longBuckets,
		}, []string{"tenant", "type", "stage"}),
		turnarounds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "asyncflow_turnaround_seconds",
			Help: "The time from the submit of tasks to their end, of ends that this node has " +
				"written.",
			Buckets: longBuckets,
		}, []string{"tenant", "type"}),
	}
}

// longBuckets are for times that may be days.
var longBuckets = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400}

// typeMeter holds the counters of a type, with their labels.
type typeMeter struct {
	tenant, name string
	active       atomic.Bool // it had tasks since age last looked
	idle         bool        // it had none in the time before
	submitted    prometheus.Counter
	expired      prometheus.Counter
	duration     prometheus.Observer
	turnaround   prometheus.Observer
	attempts     map[asyncflow.OutcomeKind]prometheus.Counter
	finished     map[asyncflow.Status]prometheus.Counter
	waits        stageWaits
}

// stageWaits holds the histograms of waits of a type, by stage.
type stageWaits struct {
	of func(stage string) prometheus.Observer

	mu     sync.Mutex
	stages map[string]prometheus.Observer // nil: the type is without labels now
}

// observe counts a wait in a stage. Stages beyond maxStages are counted together.
func (w *stageWaits) observe(stage string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stages == nil {
		return
	}
	if w.stages[stage] == nil {
		if len(w.stages) >= maxStages {
			stage = ""
		}
		if w.stages[stage] == nil {
			w.stages[stage] = w.of(stage)
		}
	}
	w.stages[stage].Observe(wait.Seconds())
}

// forget ends the counts.
func (w *stageWaits) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stages = nil
}

// Type returns the counters of a type with tasks.
func (t *types) Type(key store.TypeKey) store.TypeMeter { return t.meter(key, true) }

// meter returns the counters of a type. A type that is busy may take the labels of one that is
// idle, or of a tenant with more than its share.
func (t *types) meter(key store.TypeKey, busy bool) *typeMeter {
	if m, ok := t.known.Load(key); ok {
		return m.(*typeMeter).touch(busy)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.labelled[key]; m != nil {
		return m.touch(busy)
	}
	if len(t.labelled) < maxTypes || busy && t.makeRoom(key.Tenant) {
		m := t.resolve(key.Tenant, key.Type)
		t.labelled[key] = m
		t.known.Store(key, m)
		return m.touch(busy)
	}
	if t.rest == nil {
		t.rest = t.resolve("", "")
	}
	return t.rest
}

// touch notes that there are tasks of the type, if it is busy.
func (m *typeMeter) touch(busy bool) *typeMeter {
	if busy && !m.active.Load() {
		m.active.Store(true)
	}
	return m
}

// makeRoom takes the labels of a type away for one of a tenant, if there is one to take.
func (t *types) makeRoom(tenant string) bool {
	now := t.now()
	if now.Before(t.search) {
		return false
	}
	t.noteIdle(now)
	for key, m := range t.labelled {
		if m.idle && !m.active.Load() {
			t.forget(key)
			return true
		}
	}
	if key, ok := t.excess(tenant); ok {
		t.forget(key)
		return true
	}
	t.search = now.Add(searchPause)
	return false
}

// noteIdle notes which types had no tasks since the last time.
func (t *types) noteIdle(now time.Time) {
	if now.Sub(t.aged) < idleTime {
		return
	}
	t.aged = now
	for _, m := range t.labelled {
		m.idle = !m.active.Swap(false)
	}
}

// excess returns a type of the tenant with the most labels, if the tenant holds less than its
// share.
func (t *types) excess(tenant string) (key store.TypeKey, ok bool) {
	byTenant := map[string]int{tenant: 0}
	for key := range t.labelled {
		byTenant[key.Tenant]++
	}
	share := maxTypes / len(byTenant)
	if byTenant[tenant] >= share {
		return key, false
	}
	most := 0
	for one := range t.labelled {
		if n := byTenant[one.Tenant]; n > max(share, most) {
			key, most = one, n
		}
	}
	return key, most > 0
}

// forget takes the labels of a type away. Its counts so far are gone, as if the node had started
// anew.
func (t *types) forget(key store.TypeKey) {
	t.labelled[key].waits.forget()
	delete(t.labelled, key)
	t.known.Delete(key)
	t.submitted.DeleteLabelValues(key.Tenant, key.Type)
	t.expired.DeleteLabelValues(key.Tenant, key.Type)
	t.durations.DeleteLabelValues(key.Tenant, key.Type)
	t.turnarounds.DeleteLabelValues(key.Tenant, key.Type)
	labels := prometheus.Labels{"tenant": key.Tenant, "type": key.Type}
	t.attempts.DeletePartialMatch(labels)
	t.finished.DeletePartialMatch(labels)
	t.waits.DeletePartialMatch(labels)
}

func (t *types) resolve(tenant, name string) *typeMeter {
	m := &typeMeter{
		tenant:     tenant,
		name:       name,
		submitted:  t.submitted.WithLabelValues(tenant, name),
		expired:    t.expired.WithLabelValues(tenant, name),
		duration:   t.durations.WithLabelValues(tenant, name),
		turnaround: t.turnarounds.WithLabelValues(tenant, name),
		attempts:   map[asyncflow.OutcomeKind]prometheus.Counter{},
		finished:   map[asyncflow.Status]prometheus.Counter{},
	}
	m.waits.stages = map[string]prometheus.Observer{}
	m.waits.of = func(stage string) prometheus.Observer {
		if name == "" { // of many types, with other stages
			stage = ""
		}
		return t.waits.WithLabelValues(tenant, name, stage)
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

// Started counts a started task by how long it was due.
func (m *typeMeter) Started(stage string, wait time.Duration) { m.waits.observe(stage, wait) }

// Settled counts a settled attempt.
func (m *typeMeter) Settled(s *asyncflow.Settlement, now time.Time) {
	kind := s.Outcome.Kind
	if kind == asyncflow.OutcomeSnoozed && !s.Snoozes() {
		kind = asyncflow.OutcomeFailed // for longer than max_snooze
	}
	if c := m.attempts[kind]; c != nil {
		c.Inc()
	}
	if s.Outcome.Duration > 0 { // it was sent
		m.duration.Observe(s.Outcome.Duration.Seconds())
	}
	final := s.Verdict.Final()
	if c := m.finished[final]; c != nil {
		c.Inc()
	}
	if s.Verdict.Expired {
		m.expired.Inc()
	}
	created := s.Lease.CreatedAt
	if final != "" && final != asyncflow.StatusCancelled && !created.IsZero() {
		m.turnaround.Observe(max(0, now.Sub(created)).Seconds())
	}
}
