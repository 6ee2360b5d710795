package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// halfOpen gives the first stage an endpoint that failed, and may be tried.
func (b *bundle) halfOpen() {
	b.t.Helper()
	now := b.Clock.Now()
	b.endpointWith(asyncflow.Health{
		State: asyncflow.HealthOpen,
		Since: now.Add(-time.Minute),
		Until: now,
	})
}

// endpointWith gives the first stage an endpoint with a health.
func (b *bundle) endpointWith(h asyncflow.Health) {
	b.t.Helper()
	e := b.putEndpoint(1)
	set, err := b.SetHealth(b.t.Context(), tenant, e.ID, asyncflow.Health{}, h)
	require.NoError(b.t, err)
	require.True(b.t, set)
}

// fail makes all due tasks fail an attempt; they are due again at once.
func (b *bundle) fail(n int) {
	b.t.Helper()
	leases := b.admitAll()
	require.Len(b.t, leases, n)
	for _, l := range leases {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500})
	}
}

// block files all due tasks of the first stage under it.
func (b *bundle) block() {
	b.t.Helper()
	require.Empty(b.t, b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 0}}))
}

func retriedAtOnce() asyncflow.TaskType {
	spec := twoStages()
	spec.Stages[0].Retry = asyncflow.RetryPolicy{MaxAttempts: 9,
		Interval: asyncflow.Seconds(-0.001)}
	return spec
}

// An endpoint is tried with a task that hasn't failed before, wherever it stands in line; without
// one, with any.
func TestProbesAreFreshTasks(t *testing.T) { eachSet(t, probesAreFreshTasks) }

func probesAreFreshTasks(t *testing.T, b *bundle) {
	b.put(retriedAtOnce())
	probe := func() []string {
		t.Helper()
		return contexts(b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 1}}))
	}
	for range 30 {
		b.submit(newTask(`"bad"`))
	}
	b.fail(30)
	b.submit(newTask(`"good"`))
	b.halfOpen()
	b.block()
	require.Equal(t, []string{`"good"`}, probe(), "of those that are blocked")
	b.submit(newTask(`"new"`))
	require.Equal(t, []string{`"new"`}, probe(), "in line, behind what is blocked")
	require.Equal(t, []string{`"bad"`}, probe())
	b.checkTokens("pipe")
}

// While an endpoint is ramped up after a short pause, tasks that haven't failed go first, except
// those of ordered flows.
func TestFreshTasksRampUpAnEndpoint(t *testing.T) { eachSet(t, freshTasksRampUp) }

func freshTasksRampUp(t *testing.T, b *bundle) {
	spec := retriedAtOnce()
	b.put(spec)
	for range 30 {
		b.submit(newTask(`"bad"`))
	}
	b.fail(30)
	b.submit(newTask(`"good"`), newTask(`"good"`))
	b.endpointWith(asyncflow.Health{
		State: asyncflow.HealthClosed,
		Since: b.Clock.Now().Add(time.Hour), // a ramp begins, however long the test takes
		Pause: asyncflow.ShortOpen,
	})
	next := func() []string {
		t.Helper()
		return contexts(b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 1}}))
	}
	b.block()
	require.Equal(t, []string{`"good"`}, next(), "of those that are blocked")
	b.submit(newTask(`"new"`))
	require.ElementsMatch(t, []string{`"good"`, `"new"`}, append(next(), next()...))
	require.Equal(t, []string{`"bad"`}, next())

	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	b.submit(newTask(`"late"`))
	require.Equal(t, []string{`"bad"`}, next())
	b.checkTokens("pipe")
}

// A probe doesn't overtake the earlier tasks of an ordered flow key.
func TestProbesKeepTheOrderOfKeys(t *testing.T) { eachSet(t, probesKeepTheOrderOfKeys) }

func probesKeepTheOrderOfKeys(t *testing.T, b *bundle) {
	spec := retriedAtOnce()
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	b.submit(keyed("a", `"a0"`))
	b.fail(1)
	for i := range 30 {
		b.submit(keyed("a", `"a"`), keyed("b", fmt.Sprintf(`"b%d"`, i)))
	}
	b.halfOpen()
	b.block()
	b.block()
	got := b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 1}})
	require.Equal(t, []string{`"b0"`}, contexts(got))
	b.checkTokens("pipe")
}
