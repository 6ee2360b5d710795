package httpapi_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// putMinute writes a minute of an endpoint, some minutes ago: a failure by each of the codes, and
// attempts that took some time.
func (b *bundle) putMinute(
	endpoint string, ago int, attempts int, took time.Duration, codes ...asyncflow.Outcome,
) {
	b.t.Helper()
	var latencies asyncflow.Latencies
	for range attempts {
		latencies.Add(took)
	}
	var counts [asyncflow.FailureCodes]int64
	for _, o := range codes {
		counts[o.EndpointFailure()]++
	}
	_, err := b.db.Exec(b.t.Context(), `INSERT INTO tenant_acme.endpoint_minutes
		VALUES ($1, date_trunc('minute', now()) - $2 * interval '1 min', $3, $4, $5, $6)`,
		endpoint, ago, attempts, len(codes), counts[:], latencies[:])
	require.NoError(b.t, err)
}

func (b *bundle) history(endpoint string) api.EndpointHistory {
	b.t.Helper()
	return read[api.EndpointHistory](b, 200,
		b.call("GET", "/v1/endpoints/"+endpoint+"/history", ""))
}

// The minutes of an endpoint are in its history, in its health, and in the stats of its type.
func TestEndpointHistory(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	assert.Equal(t, api.EndpointHistory{Minutes: []api.EndpointMinute{},
		States: []api.EndpointState{}}, b.history(e.ID))
	late := asyncflow.Outcome{Failure: asyncflow.FailureTimeout}
	b.putMinute(e.ID, 70, 5, time.Second)
	b.putMinute(e.ID, 30, 10, 20*time.Millisecond)
	b.putMinute(e.ID, 2, 99, 100*time.Millisecond, late, asyncflow.Outcome{Status: 503}, late)
	b.putMinute(e.ID, 0, 1, 20*time.Second, asyncflow.Outcome{Status: 418})

	h := b.history(e.ID)
	require.Len(t, h.Minutes, 3, "of the last hour")
	assert.Nil(t, h.InFlight, "nothing has a limit")
	assert.Equal(t, 28*time.Minute, h.Minutes[1].At.Sub(h.Minutes[0].At))
	near := func(p50, p99 float64, l api.Latency) {
		t.Helper()
		off := math.Exp2(1.0/8) - 1
		assert.InEpsilon(t, p50, float64(l.P50Ms), off)
		assert.InEpsilon(t, p99, float64(l.P99Ms), off)
	}
	near(20, 20, h.Minutes[0].Latency)
	assert.Equal(t, []int64{99, 3}, []int64{h.Minutes[1].Attempts, h.Minutes[1].Failures})
	assert.Equal(t, api.FailureCodes{"timeout": 2, "503": 1}, h.Minutes[1].Codes)
	near(20_000, 20_000, h.Minutes[2].Latency)

	one := read[api.Endpoint](b, 200, b.call("GET", "/v1/endpoints/"+e.ID, "")).Health
	assert.Equal(t, []int64{100, 4}, []int64{one.Attempts, one.Failures})
	assert.Equal(t, api.FailureCodes{"timeout": 2, "503": 1, "4xx": 1}, one.Codes)
	near(100, 100, one.Latency)
	stats := read[api.StatsList](b, 200, b.call("GET", "/v1/stats", ""))
	assert.Equal(t, one.Latency, stats.Data[0].Latency)
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/idle",
		`{"stages":[{"name":"only"}]}`).status)
	idle := b.call("GET", "/v1/stats?type=idle", "")
	assert.NotContains(t, string(idle.body), "latency", "it has no attempts")

	b.patchEndpoint(e.ID, `{"max_in_flight":7}`)
	assert.Equal(t, 0, *b.history(e.ID).InFlight)
	for _, id := range []string{"no", "0190a6f0-0000-7000-8000-000000000001"} {
		assert.Equal(t, 404, b.call("GET", "/v1/endpoints/"+id+"/history", "").status)
	}
}

// The states of the circuit breaker follow its changes, with half-open in between.
func TestEndpointStates(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	at := b.store.Clock.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	reason := strings.Repeat("why ", 100)
	for _, h := range []asyncflow.Health{
		{State: asyncflow.HealthOpen, Since: second(0), Until: second(5), Reason: reason},
		{State: asyncflow.HealthOpen, Since: second(6), Until: second(16), Reason: "503"},
		{State: asyncflow.HealthClosed, Since: second(20), Reason: "503"},
		{State: asyncflow.HealthOpen, Since: second(60), Until: second(90), Reason: "429"},
		{State: asyncflow.HealthDisabled, Since: second(70), Reason: "410"},
		{State: asyncflow.HealthOpen, Since: second(100), Until: second(7200), Reason: "429"},
	} {
		now, err := b.store.Endpoint(t.Context(), "acme", e.ID)
		require.NoError(t, err)
		set, err := b.store.SetHealth(t.Context(), "acme", e.ID, now.Health, h)
		require.NoError(t, err)
		require.True(t, set)
	}
	var got []string
	for _, s := range b.history(e.ID).States {
		until := ""
		if !s.Until.IsZero() {
			until = fmt.Sprint(" to ", s.Until.Sub(at).Seconds())
		}
		got = append(got, fmt.Sprint(s.State, " ", s.Since.Sub(at).Seconds(), until, " ", s.Reason))
	}
	assert.Equal(t, []string{
		"open 100 to 7200 429",
		"disabled 70 410",
		"open 60 to 90 429",
		"closed 20 ",
		"half_open 16 ",
		"open 6 to 16 503",
		"half_open 5 ",
		"open 0 to 5 " + reason[:200],
	}, got)
	require.Equal(t, 200, b.call("POST", "/v1/endpoints/"+e.ID+"/enable", "").status)
	assert.Equal(t, asyncflow.HealthClosed, b.history(e.ID).States[0].State)
}
