package report

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	for p, want := range map[float64]float64{0: 1, 20: 1, 50: 3, 80: 4, 81: 5, 99: 5, 100: 5} {
		t.Run(fmt.Sprint("p", p), func(t *testing.T) {
			assert.Equal(t, want, Percentile(values, p), "p%v", p)
		})
	}
	assert.True(t, math.IsNaN(Percentile(nil, 50)))
	assert.Equal(t, []float64{5, 1, 4, 2, 3}, values, "the values are left as they are")
}

func TestMedian(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 2.0, Median([]float64{3, 1, 2}))
	assert.Equal(t, 2.5, Median([]float64{4, 1, 3, 2}))
	assert.True(t, math.IsNaN(Median(nil)))
}
