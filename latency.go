package asyncflow

import (
	"math"
	"time"
)

// Latencies is a histogram of times: of how long attempts took, from the sending to the answer or
// to the failure, or of how long tasks waited or took. Bucket i counts times of up to shortLatency
// × 2^(i/4), the last one also all longer ones.
type Latencies [latencyBuckets]int64

const (
	// shortLatency bounds the first bucket, and 49 days the last one. Attempts take up to
	// MaxTimeout, in bucket 100: versions before 0.1.0 know no more buckets.
	shortLatency   = 125 * time.Microsecond
	latencySteps   = 4 // buckets for each doubling
	latencyBuckets = 141
)

// Add counts an attempt.
func (l *Latencies) Add(took time.Duration) {
	l[latencyBucket(took)]++
}

func latencyBucket(took time.Duration) int {
	if took <= shortLatency {
		return 0
	}
	steps := latencySteps * math.Log2(float64(took)/float64(shortLatency))
	return min(int(math.Ceil(steps)), latencyBuckets-1)
}

// Quantile returns the time that a share q of the attempts took at most, 0 < q ≤ 1; 0 without
// attempts. It is the middle of a bucket, by ratio: up to 9 % (2^(1/8)) off between 0.125 ms and
// 49 days.
func (l *Latencies) Quantile(q float64) time.Duration {
	var all int64
	for _, n := range l {
		all += n
	}
	rank := max(1, int64(math.Ceil(q*float64(all))))
	for i, n := range l {
		if rank -= n; rank <= 0 {
			return middleOf(i)
		}
	}
	return 0
}

// Latency is how long attempts took: half of them at most P50, and 99 % at most P99. The zero value
// is that of no attempts.
type Latency struct{ P50, P99 time.Duration }

// Summary returns the latency of the attempts, as exact as Quantile.
func (l *Latencies) Summary() Latency { return Latency{l.Quantile(0.5), l.Quantile(0.99)} }

// middleOf returns the geometric mean of a bucket's bounds; of the first one, the upper bound.
func middleOf(bucket int) time.Duration {
	if bucket == 0 {
		return shortLatency
	}
	steps := float64(bucket) - 0.5
	return time.Duration(float64(shortLatency) * math.Exp2(steps/latencySteps))
}
