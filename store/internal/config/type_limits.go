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

// Probes reports whether a task of a stage would try a failed endpoint: no other endpoint may get
// it.
func Probes(t *Type, stage string, now time.Time) (halfOpen bool) {
	for _, e := range t.Endpoints(stage) {
		switch state := e.Health.At(now); {
		case !e.Serves(), state == asyncflow.HealthOpen, state == asyncflow.HealthDisabled:
		case state == asyncflow.HealthHalfOpen:
			halfOpen = true
		default:
			return false
		}
	}
	return halfOpen
}

// HealthSince returns from when on leases count for the health of endpoints that are tried or
// ramped up: the earliest of their times.
func HealthSince(t *Type, now time.Time) (since time.Time) {
	since = now
	for _, e := range t.AllEndpoints() {
		at := e.Health.Since
		if e.Health.At(now) == asyncflow.HealthHalfOpen {
			at = e.Health.Until
		}
		if e.Health.Capacity(now) > 0 && at.Before(since) {
			since = at
		}
	}
	return since
}
