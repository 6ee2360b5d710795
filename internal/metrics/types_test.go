package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// newClockedTypes returns types, and their clock.
func newClockedTypes() (*types, *time.Time) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	t := newTypes()
	t.now = func() time.Time { return now }
	return t, &now
}

// use counts a task of each of a tenant's types from first to last, and returns how many got labels
// of their own.
func (t *types) use(tenant string, first, last int) (labelled int) {
	for i := first; i <= last; i++ {
		m := t.meter(store.TypeKey{Tenant: tenant, Type: fmt.Sprint(i)}, true)
		m.Submitted(1)
		if m.tenant == tenant {
			labelled++
		}
	}
	return labelled
}

// A tenant that took all labels leaves others their share.
func TestTenantsShareLabels(t *testing.T) {
	t.Parallel()
	m, now := newClockedTypes()
	require.Equal(t, maxTypes, m.use("a", 1, 2*maxTypes))
	*now = now.Add(searchPause)
	assert.Equal(t, maxTypes/2, m.use("b", 1, maxTypes))
	*now = now.Add(searchPause)
	assert.Equal(t, maxTypes/3, m.use("c", 1, maxTypes))
	assert.Len(t, m.labelled, maxTypes)
	series := make(chan prometheus.Metric, 2*maxTypes)
	m.submitted.Collect(series)
	assert.Len(t, series, maxTypes+1, "with that of the others")
}

// Types without tasks for long give their labels back, and others keep theirs.
func TestIdleTypesGiveLabelsBack(t *testing.T) {
	t.Parallel()
	m, now := newClockedTypes()
	require.Equal(t, maxTypes, m.use("a", 1, maxTypes))
	require.Zero(t, m.use("a", maxTypes+1, maxTypes+1))
	// the second time, an hour passed without tasks of the types that are not used
	for range 2 {
		*now = now.Add(idleTime)
		m.use("a", 1, 10)
		m.use("a", maxTypes+1, maxTypes+1)
	}
	assert.Equal(t, 11, m.use("a", 1, 10)+m.use("a", maxTypes+1, maxTypes+1))
}

// Types without tasks don't keep labels from types with some.
func TestEmptyTypesGiveLabelsBack(t *testing.T) {
	t.Parallel()
	m, _ := newClockedTypes()
	for i := range 900 {
		m.meter(store.TypeKey{Tenant: "a", Type: fmt.Sprint("empty", i)}, false)
	}
	assert.Equal(t, maxTypes, m.use("a", 1, maxTypes))
}
