package asyncflow

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

const (
	// MaxAttempts is the highest number of attempts a policy may allow.
	MaxAttempts = 100
	// MaxInterval is the longest pause a policy may ask for, in seconds.
	MaxInterval = 365 * 24 * 3600

	// A worker's Retry-After may stretch the policy's pause up to tenfold and
	// never past a day, and never shortens it.
	retryAfterFactor = 10
	retryAfterMost   = 24 * time.Hour
)

// RetryPolicy tells how often a stage is attempted and how long to pause
// between two attempts.
type RetryPolicy struct {
	// MaxAttempts is the number of attempts, the first included, after which
	// the task has failed for good: 1 to 100.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Interval gives the pauses.
	Interval Interval `json:"interval,omitempty"`
}

// DefaultRetry attempts a stage 20 times over about 8 hours.
var DefaultRetry = RetryPolicy{MaxAttempts: 20, Interval: Interval{3600}}

// Next returns the pause after the given attempt (1 is the first) has failed,
// and whether there is another attempt at all. A worker's retryAfter (zero:
// none) counts within the bounds above.
func (p RetryPolicy) Next(attempt int, retryAfter time.Duration) (time.Duration, bool) {
	if attempt >= p.MaxAttempts {
		return 0, false
	}
	pause := p.Interval.Pause(attempt)
	if retryAfter <= pause {
		return pause, true
	}
	return max(pause, min(retryAfter, pause*retryAfterFactor, retryAfterMost)), true
}

// Override returns p with whatever o sets in place of its own.
func (p RetryPolicy) Override(o RetryPolicy) RetryPolicy {
	if o.MaxAttempts != 0 {
		p.MaxAttempts = o.MaxAttempts
	}
	if len(o.Interval) != 0 {
		p.Interval = o.Interval
	}
	return p
}

func (p RetryPolicy) check(field string, out *problems) {
	if p.MaxAttempts < 0 || p.MaxAttempts > MaxAttempts {
		out.add(field+".max_attempts", "is %d; it must be 1 to %d", p.MaxAttempts, MaxAttempts)
	}
	p.Interval.check(field+".interval", out)
}

// Interval is the rule for the pauses between attempts, in seconds. In JSON it
// is a number or a list of numbers:
//
//   - n > 0: 1, 2, 4, … seconds, doubling up to n
//   - n < 0: always |n| seconds
//   - [a, b, c]: a after the first attempt, b after the second, and so on; the
//     last one repeats
type Interval []float64

// maxIntervals bounds the length of a list: a policy has no more pauses.
const maxIntervals = MaxAttempts

// Pause returns the pause after the given attempt; 1 is the first.
func (i Interval) Pause(attempt int) time.Duration {
	switch {
	case len(i) == 0:
		return 0
	case len(i) > 1:
		return seconds(i[min(attempt, len(i))-1])
	case i[0] < 0:
		return seconds(-i[0])
	default:
		return seconds(min(math.Pow(2, float64(attempt-1)), i[0]))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// MarshalJSON writes a number, or a list of several.
func (i Interval) MarshalJSON() ([]byte, error) {
	if len(i) == 1 {
		return json.Marshal(i[0])
	}
	return json.Marshal([]float64(i))
}

// UnmarshalJSON reads a number or a list of numbers.
func (i *Interval) UnmarshalJSON(b []byte) error {
	var n float64
	if json.Unmarshal(b, &n) == nil && string(b) != "null" {
		*i = Interval{n}
		return nil
	}
	var list []float64
	if err := json.Unmarshal(b, &list); err != nil || len(list) == 0 {
		return fmt.Errorf("must be a number of seconds or a list of them, not %s", excerpt(b))
	}
	if len(list) == 1 { // a list of one always pauses alike
		list = append(list, list[0])
	}
	*i = list
	return nil
}

func (i Interval) check(field string, out *problems) {
	if len(i) > maxIntervals {
		out.add(field, "has %d entries; the limit is %d", len(i), maxIntervals)
		return
	}
	for _, n := range i {
		switch {
		case math.Abs(n) > MaxInterval:
			out.add(field, "is %v seconds; the limit is %d (a year)", n, MaxInterval)
		case len(i) > 1 && n < 0:
			out.add(field, "has a negative entry %v; only a single number may be negative", n)
		case len(i) == 1 && n == 0:
			out.add(field, "must not be 0: n > 0 doubles up to n, n < 0 is always |n|")
		}
	}
}
