package asyncflow_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
)

// mostOff is how much a quantile may be off, as a ratio: 2^(1/8).
var mostOff = math.Exp2(1.0 / 8)

// Quantiles are near the true ones, whatever the times.
func TestLatencies(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l asyncflow.Latencies
		all := make([]time.Duration, 1+random.IntN(300))
		scale := math.Exp(random.Float64() * 22)
		for i := range all {
			ms := scale * math.Exp(2*random.NormFloat64())
			took := time.Duration(ms * float64(time.Millisecond))
			all[i] = min(max(took, 125*time.Microsecond), 49*24*time.Hour)
			l.Add(all[i])
		}
		slices.Sort(all)
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			want := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
			off := float64(l.Quantile(q)) / float64(want)
			assert.InDelta(t, 0, math.Log(off), math.Log(mostOff)+1e-6, "%v of %v", q, want)
		}
	}
}

func TestLatenciesAtTheEnds(t *testing.T) {
	t.Parallel()
	var l asyncflow.Latencies
	assert.Zero(t, l.Quantile(0.5), "there are none")
	for _, took := range []time.Duration{-time.Second, 0, 1, 125 * time.Microsecond} {
		l.Add(took)
	}
	assert.Equal(t, 125*time.Microsecond, l.Quantile(0.99))
	for range 12 {
		l.Add(math.MaxInt64)
	}
	assert.Equal(t, 125*time.Microsecond, l.Quantile(0.25))
	assert.InEpsilon(t, 45.5*24, l.Quantile(0.26).Hours(), 0.01, "the last bucket")
	assert.InEpsilon(t, 45.5*24, l.Quantile(1).Hours(), 0.01)
}
