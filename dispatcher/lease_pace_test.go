package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// arrivals keeps when deliveries came, and to which node.
type arrivals struct {
	mu    sync.Mutex
	times map[string][]time.Time
}

func (a *arrivals) note(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.times == nil {
		a.times = map[string][]time.Time{}
	}
	a.times[node] = append(a.times[node], time.Now())
}

// since returns the times of the deliveries by some nodes since a time.
func (a *arrivals) since(start time.Time, nodes ...string) (times []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, node := range nodes {
		for _, at := range a.times[node] {
			if at.After(start) {
				times = append(times, at)
			}
		}
	}
	return times
}

// mostAbove returns by how many the deliveries exceeded a rate at most, at any time since a start.
func (a *arrivals) mostAbove(start time.Time, perSecond float64, nodes ...string) (most float64) {
	times := a.since(start, nodes...)
	for _, at := range times {
		until := 0
		for _, other := range times {
			if !other.After(at) {
				until++
			}
		}
		most = max(most, float64(until)-perSecond*at.Sub(start).Seconds())
	}
	return most
}

var rejected = asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200}

// An endpoint never gets more deliveries than its rate allows, and finally gets all of them.
// Removing the rate releases the rest at once.
func TestRateOfAnEndpoint(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"20/s", "1200/m"} {
		t.Run(rate, func(t *testing.T) {
			b := setup(t)
			b.exec(`UPDATE tenant_acme.endpoints SET rate = '` + rate + `' WHERE stage = 'first'`)
			var came arrivals
			n := b.start("a", dispatcher.Config{},
				func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
					came.note("a")
					return rejected
				})
			start := time.Now()
			n.await(t, n.submit(t, 30), asyncflow.StatusFailed)
			assert.LessOrEqual(t, came.mostAbove(start, 20, "a"), 3.0,
				"what comes in a tenth of a second may come at once, and the clock is corrected "+
					"now and then")
			n.setRate(t, b, "1/h")
			held := n.submit(t, 30)
			n.waitsFor(t, held[29].ID, asyncflow.WaitLimit)
			n.setRate(t, b, "")
			n.await(t, held, asyncflow.StatusFailed)
		})
	}
}

// setRate changes the rate of the first endpoint; "": there is none.
func (n *node) setRate(t *testing.T, b *bundle, rate string) {
	t.Helper()
	b.exec(fmt.Sprintf(
		`UPDATE tenant_acme.endpoints SET rate = nullif('%s', '') WHERE stage = 'first'`, rate))
	require.Eventually(t, func() bool {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Endpoints("first")[0].Limits.Rate.String() == rate
	}, 10*time.Second, time.Millisecond)
}

// A new node takes its share of a rate after the others give it up. When it stops, the others take
// its share over. The rate is never exceeded.
func TestShareOfARate(t *testing.T) {
	longform.Costly(t)
	// slack allows for a tenth of a second's tasks for each share, and for deliveries under way.
	const perSecond, slack = 40, 12
	b := setup(t)
	b.exec(`UPDATE tenant_acme.endpoints SET rate = '40/s' WHERE stage = 'first'`)
	var came arrivals
	start := func(name string) *node {
		return b.start(name, dispatcher.Config{},
			func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
				came.note(name)
				return rejected
			})
	}
	begun := time.Now()
	one := start("a")
	one.submit(t, 1000)
	atLeast := func(n int, since time.Time, node, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return len(came.since(since, node)) >= n
		}, patience, 5*time.Millisecond, why)
	}
	atLeast(1, begun, "a", "a node that is alone has all of it")
	second := time.Now()
	two := start("b")
	atLeast(10, second, "b", "the second node has its part")
	assert.Equal(t, []int{2, 2}, []int{one.Dispatchers(), two.Dispatchers()})
	assert.LessOrEqual(t, came.mostAbove(second, perSecond, "a", "b"), float64(slack),
		"also while the first doesn't know of the second")
	both := time.Now()
	atLeast(30, both, "a", "the first goes on")
	atLeast(30, both, "b", "the second goes on")
	for _, node := range []string{"a", "b"} {
		assert.LessOrEqual(t, came.mostAbove(both, perSecond/2, node), float64(slack),
			"half of it for "+node)
	}
	two.stop()
	alone := time.Now()
	require.Eventually(t, func() bool { return one.Dispatchers() == 1 }, patience,
		20*time.Millisecond)
	require.Eventually(t, func() bool {
		lately := time.Now().Add(-2 * time.Second)
		return len(came.since(lately, "a")) > perSecond+slack // two seconds' half, and then some
	}, patience, 20*time.Millisecond, "the first has all of it again")
	assert.LessOrEqual(t, came.mostAbove(alone, perSecond, "a", "b"), float64(slack))
	assert.LessOrEqual(t, came.mostAbove(begun, perSecond, "a", "b"), float64(slack),
		"at no time since the beginning")
}

// After a successful try an endpoint is ramped up, on all nodes together: it gets two tasks at
// once, then four, eight and so on, not all of them.
func TestRampAfterARecovery(t *testing.T) {
	// Up to early tasks are leased while the recovery is written; they don't count for the ramp.
	const tasks, early = 24, 4
	b := setup(t)
	try, finish, tried := make(chan struct{}), make(chan struct{}), make(chan struct{}, tasks)
	release := sync.OnceFunc(func() { close(finish) })
	defer release() // else a failure would wait for what is under way
	var trying atomic.Int32
	var mu sync.Mutex
	// When each delivery after the try began, by the database's clock.
	var underWay []time.Time
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		if d.Endpoint.Health.State == asyncflow.HealthOpen {
			assert.EqualValues(t, 1, trying.Add(1), "one at a time tries it")
			defer trying.Add(-1)
			tried <- struct{}{}
			select {
			case <-try:
			case <-finish:
			}
			return rejected
		}
		mu.Lock()
		underWay = append(underWay, d.At)
		mu.Unlock()
		<-finish
		return rejected
	}
	// A dispatcher that leases meanwhile would take the endpoint to be well.
	before := b.open(store.Config{Node: "before"})
	endpoints, err := before.Endpoints(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	now := before.Clock.Now()
	set, err := before.SetHealth(t.Context(), tenant, endpoints[0].ID, endpoints[0].Health,
		asyncflow.Health{
			State: asyncflow.HealthOpen,
			Since: now.Add(-2 * asyncflow.FirstOpen),
			Until: now,
			Pause: asyncflow.FirstOpen,
		})
	require.NoError(t, err)
	require.True(t, set)
	one := b.start("a", dispatcher.Config{}, send)
	two := b.start("b", dispatcher.Config{}, send)
	for _, n := range []*node{one, two} {
		require.Equal(t, asyncflow.HealthOpen, n.health(t, "first").State)
	}
	all := one.submit(t, tasks)
	<-tried
	close(try)
	require.Eventually(t,
		func() bool { mu.Lock(); defer mu.Unlock(); return len(underWay)+len(tried)+1 == tasks },
		patience, 10*time.Millisecond, "all of them in the end")
	recovered := one.health(t, "first")
	assert.Equal(t, asyncflow.HealthClosed, recovered.State)
	mu.Lock()
	for i, at := range underWay {
		step := int(at.Sub(recovered.Since) / asyncflow.RampStep)
		assert.LessOrEqual(t, i+1, early+(2<<step), "in step %d", step)
	}
	few := len(underWay) <= 8
	mu.Unlock()
	release()
	one.await(t, all, asyncflow.StatusFailed)
	if few {
		t.Skip("the machine stalled: nearly all tries came before the first was taken in")
	}
}
