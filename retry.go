package asyncflow

import "time"

const (
	// MaxAttempts is the highest number of attempts a policy may allow.
	MaxAttempts = 100

	// A worker's Retry-After may lengthen the policy's pause up to tenfold, but not beyond a day,
	// and never shortens it.
	retryAfterFactor = 10
	retryAfterMost   = 24 * time.Hour
)

// RetryPolicy sets how often a stage is attempted, and the pauses between attempts.
type RetryPolicy struct {
	// MaxAttempts is the number of attempts, including the first, after which the task fails for
	// good: 1 to 100.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Interval gives the pauses.
	Interval Interval `json:"interval,omitzero"`
}

// DefaultRetry attempts a stage 20 times over about 8 hours.
var DefaultRetry = RetryPolicy{MaxAttempts: 20, Interval: Seconds(3600)}

// Failure is what the pause after a failed attempt depends on.
type Failure struct {
	Attempt    int           // of its stage; 1 is the first
	Status     int           // HTTP status of the answer; 0: none came
	Error      string        // why it was not done
	RetryAfter time.Duration // asked for by the worker; 0: nothing asked
	Rand       float64       // the jitter's random number: 0 ≤ Rand < 1
}

// failureOf returns the Failure of an attempt. Its random number is derived from the task and
// its seq, so that deciding the same settlement again gives the same pause.
func failureOf(l Lease, o Outcome) Failure {
	return Failure{Attempt: l.Attempt, Status: o.Status, Error: o.Error, RetryAfter: o.RetryAfter,
		Rand: randOf(l.ID.Number, l.Seq)}
}

// Next returns the pause after a failed attempt, and whether there is another
// attempt at all. A worker's RetryAfter counts within the bounds above.
func (p RetryPolicy) Next(f Failure) (time.Duration, bool) {
	if f.Attempt >= p.MaxAttempts {
		return 0, false
	}
	pause := p.Interval.Pause(f)
	if f.RetryAfter <= pause {
		return pause, true
	}
	return max(pause, min(f.RetryAfter, pause*retryAfterFactor, retryAfterMost)), true
}

// IsZero reports whether the policy sets nothing.
func (p RetryPolicy) IsZero() bool { return p.MaxAttempts == 0 && p.Interval.IsZero() }

// Override returns p with its fields replaced by the ones that o sets.
func (p RetryPolicy) Override(o RetryPolicy) RetryPolicy {
	if o.MaxAttempts != 0 {
		p.MaxAttempts = o.MaxAttempts
	}
	if !o.Interval.IsZero() {
		p.Interval = o.Interval
	}
	return p
}

// without returns p without the fields that it takes from o.
func (p RetryPolicy) without(o RetryPolicy) RetryPolicy {
	if p.MaxAttempts == o.MaxAttempts {
		p.MaxAttempts = 0
	}
	if p.Interval.equal(o.Interval) {
		p.Interval = Interval{}
	}
	return p
}

func (p RetryPolicy) check(field string, out *problems) {
	if p.MaxAttempts < 0 || p.MaxAttempts > MaxAttempts {
		out.add(field+".max_attempts", "is %d; it must be 1 to %d", p.MaxAttempts, MaxAttempts)
	}
	p.Interval.check(field+".interval", out)
}

// randOf returns the seq-th number, 0 ≤ n < 1, of a SplitMix64 generator that is
// seeded with a task's number.
func randOf(task int64, seq int) float64 {
	const gamma = 0x9e3779b97f4a7c15
	return float64(splitmix64(splitmix64(uint64(task))+uint64(seq)*gamma)>>11) / (1 << 53)
}

// splitmix64 is the output function of SplitMix64 (Steele, Lea, Flood: Fast
// Splittable Pseudorandom Number Generators, 2014; the constants are from
// Vigna's splitmix64.c).
func splitmix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
