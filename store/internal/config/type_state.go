package config

import (
	"math"
	"time"
)

// PauseState says whether a task type is paused, or is ramped up.
type PauseState struct {
	PausedAt    time.Time // zero: it is not paused
	PauseReason string
	ResumedAt   time.Time // zero: it was never paused
	Ramp        time.Duration
}

// Paused reports whether nothing is leased.
func (p PauseState) Paused() bool { return !p.PausedAt.IsZero() }

// RampUntil returns when the ramp after the last resume ends; zero: it is over.
func (p PauseState) RampUntil(now time.Time) time.Time {
	if end := p.ResumedAt.Add(p.Ramp); end.After(now) && !p.Paused() {
		return end
	}
	return time.Time{}
}

// Capacity returns how many attempts a node with a capacity of full may have under way: the share
// by the past part of the ramp, but at least one; 0 while paused.
func (p PauseState) Capacity(full int, now time.Time) int {
	switch {
	case p.Paused():
		return 0
	case p.RampUntil(now).IsZero():
		return full
	}
	passed := now.Sub(p.ResumedAt).Seconds() / p.Ramp.Seconds()
	return max(1, int(math.Ceil(passed*float64(full))))
}
