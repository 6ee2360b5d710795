package store_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// putEndpoint registers the n-th endpoint for the first stage of the type pipe.
func (b *bundle) putEndpoint(n int) asyncflow.Endpoint {
	b.t.Helper()
	e, err := b.CreateEndpoint(b.t.Context(), tenant, asyncflow.Endpoint{ID: endpointID(n),
		Type: "pipe", Stage: "first", URL: fmt.Sprint("https://x.example/", n), Weight: 1})
	require.NoError(b.t, err)
	return e
}

// answered is an attempt of some duration: a status of 2xx is a success.
func answered(status int, took time.Duration) asyncflow.Outcome {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: status, Duration: took}
	if status/100 == 2 {
		o.Kind = asyncflow.OutcomeDone
	}
	return o
}

// countAttempts counts attempts at an endpoint.
func (b *bundle) countAttempts(e asyncflow.Endpoint, all ...asyncflow.Outcome) {
	for _, o := range all {
		b.CountAttempt(&asyncflow.Delivery{Tenant: tenant, Endpoint: &e}, o)
	}
}

// lately returns the counts of an endpoint.
func (b *bundle) lately(e asyncflow.Endpoint) store.EndpointCounts {
	b.t.Helper()
	all, err := b.EndpointCounts(b.t.Context(), tenant, []string{e.ID},
		b.Clock.Now().Add(-store.MinutesKept))
	require.NoError(b.t, err)
	return all[e.ID]
}

// The counts of several nodes and writes add up, in one row for an endpoint and a minute.
func TestEndpointCountsAddUp(t *testing.T) {
	b := setup(t)
	other := open(t, b.url, "node-2")
	b.put(twoStages())
	busy, quiet := b.putEndpoint(1), b.putEndpoint(2)
	random := rand.New(rand.NewPCG(1, 2))
	var want store.EndpointCounts
	for range 10 {
		for _, node := range []*bundle{b, other} {
			took := time.Duration(random.Int64N(int64(time.Minute)))
			status := []int{200, 503, 404, 0}[random.IntN(4)]
			node.countAttempts(busy, answered(status, took), answered(200, time.Millisecond))
			want.Attempts += 2
			want.Latencies.Add(took)
			want.Latencies.Add(time.Millisecond)
			if status != 200 {
				want.Failures++
				want.Codes[answered(status, 0).EndpointFailure()]++
			}
			require.NoError(t, node.WriteMinutes(t.Context()))
		}
	}
	assert.Equal(t, want, b.lately(busy))
	assert.Zero(t, b.lately(quiet))
	assert.LessOrEqual(t, b.count(`SELECT count(*) FROM tenant_acme.endpoint_minutes`), 2,
		"the test may begin in one minute and end in the next")
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.Equal(t, want.Latencies.Summary(), stats[0].Latency)
}

// Whatever an endpoint answers, and however long it takes, the size of a minute is bounded.
func TestEndpointCountsAreBounded(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	e := b.putEndpoint(1)
	var failures int64
	for status := range 1000 {
		o := answered(status, time.Duration(math.MaxInt64)>>(status%64))
		b.countAttempts(e, o)
		if o.EndpointFailed() {
			failures++
		}
	}
	require.NoError(t, b.WriteMinutes(t.Context()))
	counts := b.lately(e)
	assert.Equal(t, []int64{1000, failures}, []int64{counts.Attempts, counts.Failures})
	for _, codes := range counts.Codes {
		failures -= codes
	}
	assert.Zero(t, failures, "each failure has a code")
	assert.LessOrEqual(t, b.count(`SELECT max(cardinality(codes)) FROM tenant_acme.endpoint_minutes`),
		asyncflow.FailureCodes)
	assert.Less(t, b.count(`SELECT max(pg_column_size(m)) FROM tenant_acme.endpoint_minutes m`),
		1000)
}

// Of many attempts only the first takes memory.
func TestCountAttemptIsCheap(t *testing.T) { // alone, as it measures
	b := open(t, pgtest.Database(t, prepare), "node-1")
	d := &asyncflow.Delivery{Tenant: tenant, Endpoint: &asyncflow.Endpoint{ID: endpointID(1)}}
	o := answered(503, time.Second)
	assert.Zero(t, testing.AllocsPerRun(100_000, func() { b.CountAttempt(d, o) }))
}

func BenchmarkCountAttempt(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{URL: pgtest.Database(b, prepare), Node: "n"})
	require.NoError(b, err)
	defer s.Close()
	d := &asyncflow.Delivery{Tenant: tenant, Endpoint: &asyncflow.Endpoint{ID: endpointID(1)}}
	b.ReportAllocs()
	for b.Loop() {
		s.CountAttempt(d, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Duration: time.Second})
	}
}

// changeHealth changes the health of an endpoint.
func (b *bundle) changeHealth(id string, to asyncflow.Health) {
	b.t.Helper()
	e, err := b.Endpoint(b.t.Context(), tenant, id)
	require.NoError(b.t, err)
	set, err := b.SetHealth(b.t.Context(), tenant, id, e.Health, to)
	require.NoError(b.t, err)
	require.True(b.t, set)
}

func (b *bundle) history(id string) store.EndpointHistory {
	b.t.Helper()
	h, err := b.EndpointHistory(b.t.Context(), tenant, id)
	require.NoError(b.t, err)
	for i := range h.Changes {
		h.Changes[i].Since, h.Changes[i].Until = h.Changes[i].Since.UTC(), h.Changes[i].Until.UTC()
	}
	return h
}

// Each change of an endpoint's health is recorded; the last 50 are kept.
func TestHealthChangesAreKept(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	e, other := b.putEndpoint(1), b.putEndpoint(2)
	assert.Empty(t, b.history(e.ID).Changes)
	at := b.Clock.Now().UTC().Truncate(time.Microsecond).Add(-time.Hour)
	open := asyncflow.Health{State: asyncflow.HealthOpen, Since: at, Until: at.Add(5 * time.Second),
		Pause: 5 * time.Second, Reason: "503 Service Unavailable"}
	closed := asyncflow.Health{State: asyncflow.HealthClosed, Since: at.Add(6 * time.Second)}
	b.changeHealth(e.ID, open)
	b.changeHealth(e.ID, closed)
	open.Pause = 0
	assert.Equal(t, []asyncflow.Health{open, closed}, b.history(e.ID).Changes)
	assert.Empty(t, b.history(other.ID).Changes)

	now := func(i int) time.Time { return at.Add(time.Minute * time.Duration(i+1)) }
	const changes = store.ChangesKept + 5
	for i := range changes {
		b.changeHealth(e.ID, asyncflow.Health{State: asyncflow.HealthOpen, Since: now(i),
			Until: now(i + 1), Reason: strings.Repeat("ü", 4000)})
	}
	kept := b.history(e.ID).Changes
	require.Len(t, kept, store.ChangesKept)
	assert.Equal(t, []time.Time{now(5), now(changes - 1)},
		[]time.Time{kept[0].Since, kept[len(kept)-1].Since})
	assert.Equal(t, strings.Repeat("ü", 200), kept[0].Reason)
	require.NoError(t, b.DeleteEndpoint(t.Context(), tenant, e.ID))
	assert.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.endpoint_changes`))
	_, err := b.EndpointHistory(t.Context(), tenant, e.ID)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// An endpoint that is enabled, or moves, is closed; one that was closed is unchanged.
func TestHealthIsClosedByCallers(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	e := b.putEndpoint(1)
	states := func() (all []asyncflow.HealthState) {
		for _, h := range b.history(e.ID).Changes {
			all = append(all, h.State)
		}
		return all
	}
	gone := asyncflow.Health{State: asyncflow.HealthDisabled, Since: b.Clock.Now(),
		Reason: "410 Gone"}
	for range 2 { // the second call does nothing
		_, _, err := b.EnableEndpoint(t.Context(), tenant, e.ID)
		require.NoError(t, err)
	}
	assert.Empty(t, states())
	b.changeHealth(e.ID, gone)
	_, _, err := b.EnableEndpoint(t.Context(), tenant, e.ID)
	require.NoError(t, err)
	assert.Equal(t, []asyncflow.HealthState{"disabled", "closed"}, states())
	gone.Since = b.Clock.Now()
	b.changeHealth(e.ID, gone)
	for range 2 {
		_, err = b.ChangeEndpoint(t.Context(), tenant, e.ID, func(e *asyncflow.Endpoint) error {
			e.MoveTo(e.URL+"/moved", false)
			return nil
		})
		require.NoError(t, err)
	}
	assert.Equal(t, []asyncflow.HealthState{"disabled", "closed", "disabled", "closed"}, states())
}

// Tasks in flight for an endpoint are known if its type is limited.
func TestEndpointInFlight(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	e, other := b.putEndpoint(1), b.putEndpoint(2)
	b.submit(newTask(`1`), newTask(`2`), newTask(`3`))
	b.lease(pipe, 1)
	assert.Nil(t, b.history(e.ID).InFlight, "the lease names no endpoint")
	_, err := b.ChangeEndpoint(t.Context(), tenant, e.ID, func(e *asyncflow.Endpoint) error {
		e.Limits.MaxInFlight = 5
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 0, *b.history(e.ID).InFlight)
	require.Len(t, b.leaseLimited(2, &doorman{endpoint: e.ID}), 2)
	assert.Equal(t, 2, *b.history(e.ID).InFlight)
	assert.Equal(t, 0, *b.history(other.ID).InFlight)
}
