package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// backlogs reads how long the oldest task that is not in flight has been due: of each type that
// isn't paused, of each of its stages without an endpoint, and of each that nobody claims from.
func (j *alertsJob) backlogs(
	ctx context.Context, r *readings, tenant string, rules asyncflow.AlertRules, at time.Time,
) error {
	stats, err := j.store.Stats(ctx, tenant, "")
	var asked map[store.StageKey]time.Time
	if err == nil && rules.NoClaimers.Std() > 0 {
		asked, err = j.store.AskedAt(ctx, tenant)
	}
	if err == nil && rules.LongWait.Std() > 0 {
		err = j.longWaits(ctx, r, tenant, rules, stats, at)
	}
	for _, s := range stats {
		r.live = r.live || s.Waiting > 0 || s.Pending > 0
		if rules.DependencyLate.Std() > 0 && !s.Paused {
			r.addLateDependencies(s, at, rules.DependencyLate.Std())
		}
		if s.Type == asyncflow.AlertType || s.Paused || len(s.Backlog) == 0 ||
			s.OldestDue.IsZero() {
			continue
		}
		if rules.BacklogAge.Std() > 0 {
			r.addBacklog(asyncflow.AlertBacklogAge, s.Type, s, s.Backlog[0], at,
				rules.BacklogAge.Std())
		}
		for _, b := range s.Backlog {
			if b.WaitsFor == asyncflow.WaitEndpoint && b.Stage != "" {
				r.addBacklog(asyncflow.AlertEndpointMissing, s.Type+"/"+b.Stage, s, b, at,
					asyncflow.EndpointMissingLimit)
			}
			if b.WaitsFor == asyncflow.WaitClaimer && rules.NoClaimers.Std() > 0 {
				subject, oldest := s.Type+"/"+b.Stage, b.Oldest
				if at := asked[store.StageKey{Type: s.Type, Stage: b.Stage}]; at.After(b.Oldest) {
					b.Oldest = at
				}
				r.addBacklog(asyncflow.AlertNoClaimers, subject, s, b, at, rules.NoClaimers.Std())
				r.represent(asyncflow.AlertNoClaimers, subject, standIn{s.Type, oldest})
			}
		}
	}
	return err
}

// addLateDependencies reads for how long the oldest task of a type that waits for others does so.
func (r *readings) addLateDependencies(s store.Stats, at time.Time, limit time.Duration) {
	for _, b := range s.Backlog {
		if b.WaitsFor == asyncflow.WaitDependencies {
			r.addBacklog(asyncflow.AlertDependencyLate, s.Type, s, b, at, limit)
		}
	}
}

// addBacklog reads for how long the oldest task of a backlog is due.
func (r *readings) addBacklog(
	kind asyncflow.AlertKind, subject string, s store.Stats, b store.Backlog, at time.Time,
	limit time.Duration,
) {
	r.add(asyncflow.AlertReading{
		Alert: kind, Subject: subject, WaitsFor: b.WaitsFor,
		Value: seconds(at.Sub(b.Oldest)), Limit: limit.Seconds(),
	})
	r.represent(kind, subject, standIn{s.Type, b.Oldest})
}

// failingSchedules reads for how long schedules fail to submit their task.
func (j *alertsJob) failingSchedules(
	ctx context.Context, r *readings, tenant string, at time.Time,
) error {
	failing, err := j.store.FailingSchedules(ctx, tenant)
	for name, since := range failing {
		r.live = true
		r.add(asyncflow.AlertReading{Alert: asyncflow.AlertScheduleFailing, Subject: name,
			Value: seconds(at.Sub(since)), Limit: asyncflow.ScheduleFailingLimit.Seconds()})
	}
	return err
}

// failureRates reads the failure rate of each type with enough attempts. While an endpoint of the
// type fails, there are few attempts, and any number is enough.
func (j *alertsJob) failureRates(
	ctx context.Context, r *readings, tenant string, rules asyncflow.AlertRules, at time.Time,
) error {
	failures, err := j.store.Failures(ctx, tenant, at.Add(-asyncflow.FailureWindow))
	for name, t := range j.store.Catalog.TypesOf(tenant) {
		f := failures[name]
		circuit := typeCircuit(t, at)
		r.live = r.live || f.Attempts > 0 || circuit != circuitClosed
		if name != asyncflow.AlertType && (circuit != circuitClosed || rules.Enough(f.Attempts)) {
			r.add(rateReading(asyncflow.AlertFailureRate, name, f, circuit, rules,
				rules.FailureRate))
		}
	}
	return err
}

// endpointFailures reads the failure rate of each endpoint with enough attempts or an open circuit
// breaker. One that is failing now is over its limit, whatever its rate.
func (j *alertsJob) endpointFailures(
	ctx context.Context, r *readings, tenant string, rules asyncflow.AlertRules, at time.Time,
) error {
	counted, err := j.store.EndpointFailures(ctx, tenant, at.Add(-asyncflow.FailureWindow))
	failures := map[string]store.Failing{}
	for _, e := range counted {
		failures[e.ID] = e.Failing
	}
	for name, t := range j.store.Catalog.TypesOf(tenant) {
		for _, e := range t.AllEndpoints() {
			f := failures[e.ID]
			circuit := endpointCircuit(&e, at)
			r.live = r.live || f.Attempts > 0 || circuit != circuitClosed
			if name == asyncflow.AlertType ||
				circuit == circuitClosed && !rules.Enough(f.Attempts) {
				continue
			}
			// the one that failed isn't counted yet
			if circuit == circuitFailing && f.Attempts == 0 {
				f = store.Failing{Attempts: 1, Failures: 1}
			}
			reading := rateReading(asyncflow.AlertEndpointFailing, name+"/"+e.Stage+"/"+e.ID, f,
				circuit, rules, rules.EndpointFailureRate)
			reading.Certain = circuit == circuitFailing
			r.add(reading)
		}
	}
	return err
}

// circuit is the state of an endpoint's circuit breaker, or the worst of a type's, as far as it
// matters for counting attempts.
type circuit int

const (
	circuitClosed  circuit = iota // all attempts pass
	circuitPaused                 // none pass: the endpoint asked for a pause
	circuitFailing                // hardly any pass: see Health.Failing
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

// rateReading returns the share of attempts that failed. If an open circuit breaker leaves too few
// attempts to decide, the alert keeps its state.
func rateReading(
	kind asyncflow.AlertKind, subject string, f store.Failing, c circuit,
	rules asyncflow.AlertRules, limit float64,
) asyncflow.AlertReading {
	r := asyncflow.AlertReading{Alert: kind, Subject: subject, Limit: limit}
	r.Open = f.Attempts == 0 || c == circuitPaused && !rules.Enough(f.Attempts)
	if !r.Open {
		r.Value = float64(f.Failures) / float64(f.Attempts)
	}
	return r
}
