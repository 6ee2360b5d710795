package config

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// Limited reports whether the leases of a type need an Admission.
func (t *Type) Limited(now time.Time) bool {
	if t.unlimited {
		return false
	}
	if t.Limits != (asyncflow.Limits{}) || t.Flow != nil {
		return true
	}
	for _, endpoints := range t.endpoints {
		for _, e := range endpoints {
			if e.Limits != (asyncflow.Limits{}) || e.Health.Capacity(now) != asyncflow.Unlimited {
				return true
			}
		}
	}
	return false
}

// FreshFirst reports whether tasks of a stage that haven't failed before go first: each endpoint
// that may get them is tried, or ramped up after tasks may have been at fault. Tasks of ordered
// flows keep their order while an endpoint is ramped up.
func FreshFirst(t *Type, stage string, now time.Time) (first bool) {
	for _, e := range t.Endpoints(stage) {
		state := e.Health.At(now)
		switch {
		case !e.Serves(), state == asyncflow.HealthOpen, state == asyncflow.HealthDisabled:
		case !e.Health.FreshFirst(now), Ordered(t) && state != asyncflow.HealthHalfOpen:
			return false
		default:
			first = true
		}
	}
	return first
}

// HealthSince returns the endpoints of a type that are tried or ramped up, and for each of them
// from when on its leases count for its health.
func HealthSince(t *Type, now time.Time) (ids []string, since []time.Time) {
	for _, e := range t.AllEndpoints() {
		if e.Health.Capacity(now) > 0 {
			ids = append(ids, e.ID)
			since = append(since, e.Health.CountsSince(now))
		}
	}
	return ids, since
}
