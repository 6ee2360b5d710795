package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// halfOpen gives the first stage an endpoint that failed, and may be tried.
func (b *bundle) halfOpen() {
	b.t.Helper()
	now := b.Clock.Now()
	b.unwell(1, asyncflow.Health{
		State: asyncflow.HealthOpen,
		Since: now.Add(-time.Minute),
		Until: now,
	})
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
	b.unwell(1, asyncflow.Health{
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

// A probe that hangs counts for ShortOpen if tasks may have been at fault, otherwise until it ends,
// whatever the state of the type's other endpoints.
func TestEachEndpointCountsItsOwnLeases(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	now := b.Clock.Now()
	probed := b.unwell(1, asyncflow.Health{
		State: asyncflow.HealthOpen,
		Since: now.Add(-time.Minute),
		Until: now.Add(-time.Minute + asyncflow.ShortOpen),
		Pause: asyncflow.ShortOpen,
	})
	b.submit(newTask(`1`), newTask(`2`))
	require.Len(t, b.leaseLimited(1, &doorman{endpoint: probed}), 1)
	b.exec(`UPDATE tenant_acme.lease SET leased_at = leased_at - interval '3 s'`)
	require.Equal(t, []int{1, 0}, b.inFlight(probed), "it counts for 2 s only")

	failing := b.unwell(2, asyncflow.Health{
		State: asyncflow.HealthOpen,
		Since: now.Add(-time.Hour),
		Until: now.Add(-time.Hour + 5*time.Second),
		Pause: 5 * time.Second,
	})
	require.Equal(t, []int{1, 0}, b.inFlight(probed), "while another endpoint is half open")

	require.Len(t, b.leaseLimited(1, &doorman{endpoint: failing}), 1)
	require.Equal(t, []int{1, 1}, b.inFlight(failing), "where tasks weren't at fault")
	require.Equal(t, []int{1, 0}, b.inFlight(probed))
}

// unwell gives the first stage an endpoint with a health, and returns its id.
func (b *bundle) unwell(n int, h asyncflow.Health) string {
	b.t.Helper()
	e := b.putEndpoint(n)
	set, err := b.SetHealth(b.t.Context(), tenant, e.ID, asyncflow.Health{}, h)
	require.NoError(b.t, err)
	require.True(b.t, set)
	return e.ID
}

// inFlight returns how many leases of an endpoint there are, and how many count for its health.
func (b *bundle) inFlight(endpoint string) []int {
	b.t.Helper()
	var counts []int
	_, err := b.LeaseLimited(b.t.Context(), b.known(), 1, func(f store.InFlight) store.Admission {
		counts = []int{f.All[endpoint], f.Lately[endpoint]}
		return &doorman{capacities: map[string]int{"first": 0}}
	})
	require.NoError(b.t, err)
	return counts
}
