package asyncflow

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of limits.
const (
	MaxMaxInFlight = 1_000_000
	MaxRateCount   = 1_000_000
	MaxFlowKey     = 255 // bytes of a flow key
)

// Rate is the number of starts within a period. It is written "100/s", "5000/m" or "10/h".
type Rate struct {
	Count int
	Per   time.Duration // a second, a minute or an hour
}

var ratePers = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// IsZero reports whether there is no limit.
func (r Rate) IsZero() bool { return r == Rate{} }

// PerSecond returns the rate per second.
func (r Rate) PerSecond() float64 { return float64(r.Count) / r.Per.Seconds() }

// String returns the rate as it is written in documents.
func (r Rate) String() string {
	for unit, per := range ratePers {
		if r.Per == per {
			return strconv.Itoa(r.Count) + "/" + unit
		}
	}
	return ""
}

// MarshalText writes the rate as String does.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a rate such as "100/s".
func (r *Rate) UnmarshalText(b []byte) error {
	count, unit, _ := strings.Cut(string(b), "/")
	n, err := strconv.Atoi(count)
	per := ratePers[unit]
	if err != nil || per == 0 || count != strconv.Itoa(n) {
		return fmt.Errorf(`must be a rate such as "100/s", "5000/m" or "10/h", not %q`, excerpt(b))
	}
	*r = Rate{n, per}
	return nil
}

// Limits bound the tasks in flight, and the starts within a period; zero: no limit.
type Limits struct {
	// MaxInFlight is the limit of tasks leased at once on all nodes, including tasks that were
	// answered with 202.
	MaxInFlight int `json:"max_in_flight,omitzero"`
	// Rate is divided among the live nodes.
	Rate Rate `json:"rate,omitzero"`
}

func (l Limits) checkLimits(prefix string, out *problems) {
	if l.MaxInFlight < 0 || l.MaxInFlight > MaxMaxInFlight {
		out.add(prefix+"max_in_flight", "is %d; it must be 1 to %d, or 0 for no limit",
			l.MaxInFlight, MaxMaxInFlight)
	}
	if !l.Rate.IsZero() && (l.Rate.Count < 1 || l.Rate.Count > MaxRateCount) {
		out.add(prefix+"rate", "is %s; its number must be 1 to %d", l.Rate, MaxRateCount)
	}
}

// FlowFailure is what happens to an ordered flow key when one of its tasks fails.
type FlowFailure string

const (
	// FlowSkip: the others wait while the task is retried. When it fails for good, the next one
	// runs.
	FlowSkip FlowFailure = "skip"
	// FlowBlock: like FlowSkip, but when the task fails for good, the others wait until it is
	// redriven and then succeeds or is cancelled.
	FlowBlock FlowFailure = "block"
	// FlowPark: a task that waits for a retry lets the others pass.
	FlowPark FlowFailure = "park"
)

// Flow holds the rules for tasks with the same flow key. The limits apply to each key
// separately.
type Flow struct {
	Limits
	// Ordered runs the tasks of a key one at a time, each through all of its stages, in the order
	// of their order_time.
	Ordered   bool        `json:"ordered,omitzero"`
	OnFailure FlowFailure `json:"on_failure,omitempty"` // "": FlowSkip
	// Fair makes keys with due tasks take turns.
	Fair Fairness `json:"fair,omitempty"`
	// Weights are how many tasks a key starts in its turn; other keys start one.
	Weights map[string]int `json:"weights,omitempty"`
}

func (f *Flow) check(out *problems) {
	if f == nil {
		return
	}
	f.checkLimits("flow.", out)
	f.checkFair(out)
	switch f.OnFailure {
	case "", FlowSkip, FlowBlock, FlowPark:
	default:
		out.add("flow.on_failure", `is %q; it must be "skip", "block" or "park"`,
			excerpt([]byte(f.OnFailure)))
	}
	switch {
	case f.OnFailure != "" && !f.Ordered:
		out.add("flow.on_failure", "needs flow.ordered")
	case f.Ordered && f.MaxInFlight > 1:
		out.add("flow.max_in_flight", "is %d; with flow.ordered it is 1", f.MaxInFlight)
	case !f.Blocks() && f.Fair == FairNot:
		out.add("flow", "has no limit; it must have max_in_flight, rate, ordered or fair")
	}
}

// InFlight returns the number of tasks of a key that may be leased at once; 0: no limit.
func (f *Flow) InFlight() int {
	if f.Ordered {
		return 1
	}
	return f.MaxInFlight
}

// LineKeyOf returns the key of the token rows of a task with these options: its flow key, if the
// type sets a flow, or its Child.VoteKey. "": none.
func (t TaskType) LineKeyOf(o Options) string {
	if key := o.Child.VoteKey(); key != "" {
		return key
	}
	if t.Flow == nil {
		return ""
	}
	return o.FlowKey
}

// Started reports whether a task at this stage and attempt ran before: it did, but for the first
// attempt at the first stage.
func (t TaskType) Started(stage string, attempt int) bool {
	return attempt > 1 || t.StageIndex(stage) > 0
}
