package httpapi_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// Workers are listed by the names that they gave, with what they run and ended.
func TestListWorkers(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.submitOne()
	b.submitOne()
	const name = "worker-7f9c"
	ended, token := b.lease()
	require.Equal(t, 200, b.callFrom(name, token, "/v1/callbacks/"+ended.ID.String()+"/fail",
		`{"error":"no","retryable":false}`).status)
	running, token := b.lease()
	require.Equal(t, 200, b.callFrom(name, token,
		"/v1/callbacks/"+running.ID.String()+"/heartbeat", "{}").status)
	report := read[api.WorkerReport](b, 200, b.call("GET", "/v1/workers?type=pipe", ""))
	assert.Equal(t, []any{1, 1, true}, []any{report.Count, report.Searched.Attempts,
		report.Searched.Complete})
	assert.InDelta(t, 15*time.Minute, time.Since(report.Since), float64(time.Minute))
	require.Len(t, report.Workers, 1)
	w := report.Workers[0]
	assert.Equal(t, []any{name, "pipe", ended.Stage, api.WorkerHealthState("well"), 1, 1, 1, 0},
		[]any{w.Name, w.Type, w.Stage, w.State, w.Running, w.Attempts, w.Failures, w.Lost})
	assert.WithinDuration(t, time.Now(), w.LastSeen, time.Minute)
	assert.WithinDuration(t, running.LeasedAt, w.OldestRunning, time.Millisecond)

	long := url.QueryEscape(time.Now().Add(-25 * time.Hour).Format(time.RFC3339))
	for query, want := range map[string]struct {
		status int
		field  string
	}{
		"?since=" + long: {400, "since"},
		"?limit=501":     {400, "limit"},
		"?limit=0":       {400, "limit"},
		"?type=nope":     {404, "type"},
		"?worker=x":      {400, "worker"},
	} {
		got := b.call("GET", "/v1/workers"+query, "")
		assert.Equal(t, want.status, got.status, query)
		assert.Contains(t, string(got.body), want.field, query)
	}
}

// Workers need the scope read, and are the tenant's own.
func TestWorkersOfTenants(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	b.failSecond()
	const path = "/v1/workers"
	assert.Equal(t, 403, b.callAs(b.newToken("acme", auth.ScopeSubmit), "GET", path, "").status)
	for tenant, want := range map[string]int{"acme": 2, "other": 0} { // two stages
		report := read[api.WorkerReport](b, 200,
			b.callAs(b.newToken(tenant, auth.ScopeRead), "GET", path, ""))
		assert.Equal(t, want, report.Searched.Attempts, tenant)
	}
}
