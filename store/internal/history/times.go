package history

import (
	"math"
	"time"

	"github.com/asyncflow/asyncflow"
)

// A bucket of a point has two of asyncflow.Latencies, so that a point is small: it has times of up
// to shortest × 2^(i/2), and bucket 0 all that are no longer than shortest.

const (
	shortest = 125 * time.Microsecond
	buckets  = 71
)

// bucketOf returns the bucket for an index of asyncflow.Latencies.
func bucketOf(latency int) Field { return Field((latency + 1) / 2) }

// countTimes adds a histogram from first on.
func (v Values) countTimes(first Field, counts []int64) {
	for i, n := range counts {
		if i < len(asyncflow.Latencies{}) {
			v.count(first+bucketOf(i), n)
		}
	}
}

// Times is how long something took: the p-th percentile is the time that p % took at most. The zero
// value is that of nothing.
type Times struct{ P50, P95, P99 time.Duration }

// Waits returns how long tasks were due until they were started.
func (v Values) Waits() Times { return v.times(firstWait) }

// Durations returns how long attempts at endpoints took.
func (v Values) Durations() Times { return v.times(firstDuration) }

func (v Values) times(first Field) Times {
	return Times{v.quantile(first, 0.50), v.quantile(first, 0.95), v.quantile(first, 0.99)}
}

// quantile returns the time that a share q took at most, by the nearest-rank method (Hyndman and
// Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50, 1996, definition
// 1): the bucket of the one of rank ⌈q·n⌉. Of a bucket it is the geometric mean of its bounds, so
// that it is up to 19 % (2^(1/4)) off.
func (v Values) quantile(first Field, q float64) time.Duration {
	var all int64
	for i := range Field(buckets) {
		all += v[first+i]
	}
	if all == 0 {
		return 0
	}
	rank := max(1, int64(math.Ceil(q*float64(all))))
	for i := range Field(buckets) {
		if rank -= v[first+i]; rank <= 0 {
			return middleOf(int(i))
		}
	}
	return 0
}

func middleOf(bucket int) time.Duration {
	if bucket == 0 {
		return shortest
	}
	return time.Duration(float64(shortest) * math.Exp2((float64(bucket)-0.5)/2))
}
