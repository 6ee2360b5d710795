package report

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234.5: "1,234", 1234567: "1,234,567",
	} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			assert.Equal(t, want, Number(v))
		})
	}
}

func TestMeans(t *testing.T) {
	t.Parallel()
	of := func(rate, cpu float64) Figures {
		return Figures{{"rate", "Rate", "tasks/s", rate}, {"cpu_all", "CPU", "µs/task", cpu}}
	}
	assert.Equal(t, of(1.5, 2), MeanOf([]Figures{of(1, 1), of(3, 3)}))
}

func TestZeroRateIsBroken(t *testing.T) {
	t.Parallel()
	assert.NoError(t, Figures{{Unit: "tasks/s", Value: 1}, {Unit: "tasks", Value: 0}}.Check())
	assert.Error(t, Figures{{Unit: "tasks/s", Value: 0}}.Check())
	assert.Error(t, Figures{{Unit: "tasks/s", Value: math.NaN()}}.Check())
}
