package asyncflow

import (
	"fmt"
	"strings"
	"time"
)

// An endpoint's health is a circuit breaker with three states, and a fourth that lasts:
//
//	closed    all is well. Since it last recovered it is ramped up for a while
//	open      it gets nothing until a time
//	half-open that time is over: one task at a time tries it
//	disabled  it answered 410: it gets nothing until somebody enables it
//
// The node that notices a change of state writes it for all nodes. Half-open is never written:
// open becomes half-open by itself.

const (
	// FailuresToOpen is the number of tasks after which the breaker opens, if their attempts on
	// one node failed in a row and found no worker.
	FailuresToOpen = 10
	// If a worker is there, but all tasks fail or run out of time, the breaker opens once as many
	// tasks failed and no task succeeded for NoSuccessToOpen. It lasts for ShortOpen, always: tasks
	// that the worker can do must not wait for long because of others that it can't.
	NoSuccessToOpen = 10 * time.Second
	ShortOpen       = 2 * time.Second
	// Otherwise an open breaker lasts for FirstOpen, then twice as long after each failed try, up
	// to MaxOpen. An endpoint that asks for a pause by Retry-After gets it, up to MaxSlowDown.
	FirstOpen   = 5 * time.Second
	MaxOpen     = 5 * time.Minute
	MaxSlowDown = time.Hour
	// After a recovery, the endpoint gets 2 tasks at once, and twice as many after each of
	// RampSteps steps of RampStep; then there is no limit.
	RampStep  = time.Second
	RampSteps = 10
	// relapse is the time after a recovery within which the next opening lasts longer than the
	// last one.
	relapse = time.Minute
)

// HTTP statuses (RFC 9110, RFC 6585) by which an endpoint reports its health.
const (
	statusGone               = 410
	statusTooManyRequests    = 429
	statusBadGateway         = 502
	statusServiceUnavailable = 503
	statusGatewayTimeout     = 504
)

// HealthState is a state of an endpoint's health.
type HealthState string

const (
	HealthClosed   HealthState = "closed"
	HealthOpen     HealthState = "open"
	HealthHalfOpen HealthState = "half_open" // never stored
	HealthDisabled HealthState = "disabled"
)

// Health is the health of an endpoint. The zero value is healthy.
type Health struct {
	State  HealthState // "": HealthClosed
	Since  time.Time   // of the state; zero: always
	Until  time.Time   // while open
	Pause  time.Duration
	Reason string // of the last time it was opened or disabled
}

// At returns the state at a time.
func (h Health) At(now time.Time) HealthState {
	switch {
	case h.State == "":
		return HealthClosed
	case h.State == HealthOpen && !now.Before(h.Until):
		return HealthHalfOpen
	}
	return h.State
}

// Failing reports whether the endpoint gets nothing, or one task at a time as a try, because
// its attempts failed or it answered with 410, and not because it asked for a pause. (Only
// after failures is it open for exactly the pause.)
func (h Health) Failing() bool {
	return h.State == HealthDisabled || h.State == HealthOpen && h.Pause > 0 &&
		h.Until.Equal(h.Since.Add(h.Pause))
}

// Unlimited is a Capacity without limit.
const Unlimited = -1

// Capacity returns the number of tasks that may be in flight at the endpoint; Unlimited: no limit.
func (h Health) Capacity(now time.Time) int {
	switch h.At(now) {
	case HealthOpen, HealthDisabled:
		return 0
	case HealthHalfOpen:
		return 1
	}
	if step := int(now.Sub(h.Since) / RampStep); !h.Since.IsZero() && step < RampSteps {
		return 2 << max(step, 0)
	}
	return Unlimited
}

// CountsSince returns from when on the tasks in flight count for the Capacity. Where tasks may have
// been at fault, a task that tries the endpoint counts for ShortOpen only: if it hangs, another one
// may try.
func (h Health) CountsSince(now time.Time) time.Time {
	if h.At(now) != HealthHalfOpen {
		return h.Since
	}
	if lately := now.Add(-ShortOpen); h.Pause == ShortOpen && lately.After(h.Until) {
		return lately
	}
	return h.Until
}

// FreshFirst reports whether tasks that haven't failed before should get the endpoint's capacity
// first: one task tries it, or it is ramped up after tasks may have been at fault.
func (h Health) FreshFirst(now time.Time) bool {
	switch h.At(now) {
	case HealthHalfOpen:
		return true
	case HealthClosed:
		return h.Pause == ShortOpen && h.Capacity(now) != Unlimited
	}
	return false
}

// Failed returns the health after an attempt that failed because of the endpoint, sent at the given
// time. It is in the run already.
func (h Health) Failed(o Outcome, run FailureRun, sent, now time.Time) Health {
	state := h.At(now)
	switch {
	case state == HealthDisabled:
		return h
	case o.Status == statusGone:
		return Health{State: HealthDisabled, Since: now, Reason: o.Error}
	case o.RetryAfter > 0 && (o.Status == statusTooManyRequests ||
		o.Status == statusServiceUnavailable):
		until := now.Add(min(o.RetryAfter, MaxSlowDown))
		if state == HealthOpen && (sent.Before(h.Since) || !until.After(h.Until)) {
			return h
		}
		return Health{State: HealthOpen, Since: now, Until: until, Pause: h.Pause, Reason: o.Error}
	case state == HealthOpen || sent.Before(h.Since): // it was sent before the change
		return h
	case state != HealthHalfOpen && !run.Opens(o, now):
		return h
	case o.mayBeTheTasksFault():
		return open(ShortOpen, o, now)
	case state != HealthHalfOpen && o.Status != 0 && now.Sub(h.Since) < relapse:
		// A worker was there just now, so that the tasks may be at fault, as above.
		return open(ShortOpen, o, now)
	case state == HealthHalfOpen, now.Sub(h.Since) < relapse:
		return open(min(max(2*h.Pause, FirstOpen), MaxOpen), o, now)
	}
	return open(FirstOpen, o, now)
}

func open(pause time.Duration, o Outcome, now time.Time) Health {
	return Health{State: HealthOpen, Since: now, Until: now.Add(pause), Pause: pause,
		Reason: o.Error}
}

// Answered returns the health after an attempt that the endpoint answered, sent at the given
// time.
func (h Health) Answered(sent, now time.Time) Health {
	if h.At(now) != HealthHalfOpen || sent.Before(h.Until) {
		return h
	}
	return Health{State: HealthClosed, Since: now, Pause: h.Pause, Reason: h.Reason}
}

// maxStoppedReason is how many bytes of the reason stand in an endpoint's sentence.
const maxStoppedReason = 500

// StoppedText says which endpoints of a stage get no deliveries now, until when and why; "": all
// get some.
func StoppedText(endpoints []Endpoint, now time.Time) string {
	var texts []string
	for i := range endpoints {
		if text := endpoints[i].stoppedText(now); text != "" && endpoints[i].Serves() {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

func (e *Endpoint) stoppedText(now time.Time) string {
	text := "Deliveries to " + e.URL + " have stopped until "
	switch e.Health.At(now) {
	case HealthOpen:
		text += e.Health.Until.UTC().Format(time.RFC3339)
	case HealthHalfOpen:
		text += "one task succeeds, which is tried now"
	case HealthDisabled:
		text += fmt.Sprintf("the endpoint %s is enabled", e.ID)
	default:
		return ""
	}
	if e.Health.Reason != "" {
		text += ": " + cutText(e.Health.Reason, maxStoppedReason)
	}
	return text
}

// cutText returns the first n bytes of a text at most, in whole characters.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
