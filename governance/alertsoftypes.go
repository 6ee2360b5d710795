package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// backlogs tells how long the oldest tasks have been due that are not under way: of each type
// that isn't paused, and of each of its stages that has no endpoint.
func (g *Governor) backlogs(ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time) ([]asyncflow.AlertReading, error) {
	stats, err := g.store.Stats(ctx, tenant, "")
	var all []asyncflow.AlertReading
	for _, s := range stats {
		if s.Type == asyncflow.AlertType || s.Paused || len(s.Backlog) == 0 {
			continue
		}
		if rules.BacklogAge > 0 {
			all = append(all, backlogReading(asyncflow.AlertBacklogAge, s.Type, s.Backlog[0], at, rules.BacklogAge.Std()))
		}
		for _, b := range s.Backlog {
			if b.WaitsFor == asyncflow.WaitEndpoint && b.Stage != "" {
				all = append(all, backlogReading(asyncflow.AlertEndpointMissing, s.Type+"/"+b.Stage, b, at, asyncflow.EndpointMissingLimit))
			}
		}
	}
	return all, err
}

func backlogReading(kind asyncflow.AlertKind, subject string, b store.Backlog, at time.Time, limit time.Duration) asyncflow.AlertReading {
	return asyncflow.AlertReading{Alert: kind, Subject: subject, WaitsFor: b.WaitsFor,
		Value: seconds(at.Sub(b.Oldest)), Limit: limit.Seconds()}
}

// failureRates are of the types with enough attempts. While an endpoint of a type fails, there
// are few, and any count.
func (g *Governor) failureRates(ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time) ([]asyncflow.AlertReading, error) {
	failures, err := g.store.Failures(ctx, tenant, at.Add(-asyncflow.FailureWindow))
	var all []asyncflow.AlertReading
	for name, t := range g.store.Catalog.TypesOf(tenant) {
		f, circuit := failures[name], typeCircuit(t, at)
		if name != asyncflow.AlertType && (circuit != circuitClosed || rules.Enough(f.Attempts)) {
			all = append(all, rateReading(asyncflow.AlertFailureRate, name, f, circuit, rules, rules.FailureRate))
		}
	}
	return all, err
}

// endpointFailures are of the endpoints with enough attempts, and of those that fail. One that
// fails by now does so wholly, however few attempts there were.
func (g *Governor) endpointFailures(ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time) ([]asyncflow.AlertReading, error) {
	counted, err := g.store.EndpointFailures(ctx, tenant, at.Add(-asyncflow.FailureWindow))
	failures := map[string]store.Failing{}
	for _, e := range counted {
		failures[e.ID] = e.Failing
	}
	var all []asyncflow.AlertReading
	for name, t := range g.store.Catalog.TypesOf(tenant) {
		for _, e := range t.AllEndpoints() {
			f, circuit := failures[e.ID], endpointCircuit(&e, at)
			if name == asyncflow.AlertType || circuit == circuitClosed && !rules.Enough(f.Attempts) {
				continue
			}
			if circuit == circuitFailing {
				f = store.Failing{Attempts: 1, Failures: 1}
			}
			all = append(all, rateReading(asyncflow.AlertEndpointFailing, name+"/"+e.Stage+"/"+e.ID, f, circuit, rules, rules.EndpointFailureRate))
		}
	}
	return all, err
}

// circuit is how far the circuit breaker of an endpoint, or of any of a type, lets attempts
// through that could be counted.
type circuit int

const (
	circuitClosed  circuit = iota // all of them
	circuitPaused                 // none: the endpoint asked for some time
	circuitFailing                // hardly any: see Health.Failing
)

func endpointCircuit(e *asyncflow.Endpoint, at time.Time) circuit {
	switch {
	case !e.Serves(), e.Health.At(at) == asyncflow.HealthClosed:
		return circuitClosed
	case e.Health.Failing():
		return circuitFailing
	}
	return circuitPaused
}

func typeCircuit(t *store.Type, at time.Time) (worst circuit) {
	for _, e := range t.AllEndpoints() {
		worst = max(worst, endpointCircuit(&e, at))
	}
	return worst
}

// rateReading is the share of attempts that failed. Where an open circuit leaves too few of
// them to tell, the alert stays as it is.
func rateReading(kind asyncflow.AlertKind, subject string, f store.Failing, c circuit, rules asyncflow.AlertRules, limit float64) asyncflow.AlertReading {
	r := asyncflow.AlertReading{Alert: kind, Subject: subject, Limit: limit}
	r.Open = f.Attempts == 0 || c == circuitPaused && !rules.Enough(f.Attempts)
	if !r.Open {
		r.Value = float64(f.Failures) / float64(f.Attempts)
	}
	return r
}
