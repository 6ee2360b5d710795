package dispatcher

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// breakers is this node's part of the endpoints' circuit breakers: what it saw of each endpoint
// that fails, and the endpoints with a change of health under way.
type breakers struct {
	store *store.Store
	log   *slog.Logger
	jobs  *jobs // in which changes of health are written

	mu       sync.Mutex
	runs     map[string]asyncflow.FailureRun // by endpoint that fails
	changing map[string]bool
}

func newBreakers(s *store.Store, log *slog.Logger, j *jobs) *breakers {
	return &breakers{store: s, log: log, jobs: j, runs: map[string]asyncflow.FailureRun{},
		changing: map[string]bool{}}
}

// add records an attempt that failed, and returns the endpoint's failures in a row.
func (p *breakers) add(
	endpoint string, task asyncflow.TaskID, o asyncflow.Outcome, now time.Time,
) asyncflow.FailureRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	run := p.runs[endpoint]
	run.Add(task, o, now)
	p.runs[endpoint] = run
	return run
}

// reset ends an endpoint's failures in a row.
func (p *breakers) reset(endpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.runs, endpoint)
}

// forget drops the counts of endpoints that are gone.
func (p *breakers) forget() {
	p.mu.Lock()
	failing := len(p.runs)
	p.mu.Unlock()
	if failing == 0 {
		return
	}
	there := p.endpoints()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.runs, func(endpoint string, _ asyncflow.FailureRun) bool {
		return !there[endpoint]
	})
}

// endpoints returns the ids of all endpoints.
func (p *breakers) endpoints() map[string]bool {
	known := map[string]bool{}
	for t := range p.store.Catalog.Types() {
		for _, e := range t.AllEndpoints() {
			known[e.ID] = true
		}
	}
	return known
}

// begin reports whether the caller may change the endpoint's health: no other change is under way.
// If so, the caller must call end.
func (p *breakers) begin(endpoint string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changing[endpoint] {
		return false
	}
	p.changing[endpoint] = true
	return true
}

func (p *breakers) end(endpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.changing, endpoint)
}

// examine updates an endpoint's health and counts after an attempt.
func (p *breakers) examine(v *asyncflow.Delivery, o asyncflow.Outcome) {
	p.store.CountAttempt(v, o)
	now := p.store.Clock.Now()
	failed := o.EndpointFailed()
	var run asyncflow.FailureRun
	if failed {
		run = p.add(v.Endpoint.ID, v.Lease.ID, o, now)
	} else {
		p.reset(v.Endpoint.ID)
	}
	if !failed && v.Endpoint.Health.State == "" {
		return
	}
	e, ok := p.endpoint(v)
	if !ok {
		return
	}
	if e.Health.Capacity(now) == 0 { // after a pause, the count begins at zero
		p.reset(e.ID)
	}
	next := e.Health.Answered(v.At, now)
	if failed {
		next = e.Health.Failed(o, run, v.At, now)
	}
	if next == e.Health || !p.begin(e.ID) {
		return
	}
	// when the probe's lease ends, another may begin
	if e.Health.At(now) == asyncflow.HealthHalfOpen {
		p.changeHealth(v.Tenant, e, next)
		return
	}
	tenant := v.Tenant
	p.jobs.start(func() { p.changeHealth(tenant, e, next) })
}

// endpoint returns a delivery's endpoint from the catalog.
func (p *breakers) endpoint(v *asyncflow.Delivery) (asyncflow.Endpoint, bool) {
	t, err := p.store.Catalog.Type(v.Tenant, v.Endpoint.Type)
	if err != nil {
		return asyncflow.Endpoint{}, false
	}
	for _, e := range t.Endpoints(v.Endpoint.Stage) {
		if e.ID == v.Endpoint.ID {
			return e, true
		}
	}
	return asyncflow.Endpoint{}, false
}

// healthTime bounds the writing of a change of health.
const healthTime = 10 * time.Second

func (p *breakers) changeHealth(tenant string, e asyncflow.Endpoint, next asyncflow.Health) {
	defer p.end(e.ID)
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	set, err := p.store.SetHealth(ctx, tenant, e.ID, e.Health, next)
	switch {
	case err != nil:
		p.log.Warn("can't write the health of an endpoint", "tenant", tenant, "endpoint", e.ID,
			"error", err)
	case set && next.State == asyncflow.HealthClosed:
		p.log.Info("an endpoint has recovered", "tenant", tenant, "type", e.Type, "stage", e.Stage,
			"endpoint", e.ID)
	case set:
		p.log.Warn("an endpoint gets no tasks", "tenant", tenant, "type", e.Type, "stage", e.Stage,
			"endpoint", e.ID,
			"health", string(next.State), "until", next.Until, "reason", next.Reason)
	}
}
