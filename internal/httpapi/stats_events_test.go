package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// followStats opens the stream of a tenant's stats.
func (b *bundle) followStats(ctx context.Context) *events {
	b.t.Helper()
	e, a := b.stream(ctx, b.token, "/v1/stats/events", "")
	require.Equal(b.t, 200, a.status, "%s", a.body)
	return e
}

func (e *events) stats(kind string) (all []api.Stats) {
	e.t.Helper()
	var list api.StatsList
	require.NoError(e.t, json.Unmarshal([]byte(e.expect(kind).data), &list))
	return list.Data
}

// A stream begins with all types, and then brings the ones that change. It begins anew when one is
// gone.
func TestStatsEvents(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/idle",
		`{"stages":[{"name":"only"}]}`).status)
	e := b.followStats(t.Context())
	all := e.stats("all")
	require.Len(t, all, 2)
	assert.Equal(t, []string{"idle", "pipe"}, []string{all[0].Type, all[1].Type})
	assert.Equal(t, read[api.StatsList](b, 200, b.call("GET", "/v1/stats", "")).Data, all)

	b.submitOne()
	changed := e.stats("stats")
	require.Len(t, changed, 1, "only what changed")
	assert.Equal(t, []any{"pipe", int64(1)}, []any{changed[0].Type, changed[0].Pending})

	require.Equal(t, 204, b.call("DELETE", "/v1/task-types/idle", "").status)
	for all = nil; len(all) != 1; { // its rates may change once more before
		v, err := e.next()
		require.NoError(t, err)
		if v.kind == "all" {
			var list api.StatsList
			require.NoError(t, json.Unmarshal([]byte(v.data), &list))
			all = list.Data
		}
	}
	assert.Equal(t, "pipe", all[0].Type)
}

// A tenant with many types gets them in several events.
func TestStatsEventsOfManyTypes(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	const types = 210
	for i := range types {
		require.Equal(t, 201, b.call("PUT", fmt.Sprintf("/v1/task-types/t%d", i),
			`{"stages":[{"name":"only"}]}`).status)
	}
	e := b.followStats(t.Context())
	assert.Len(t, e.stats("all"), 200)
	assert.Len(t, e.stats("stats"), types-200)
}

// Many streams of a tenant share one reader, which ends with the last of them.
func TestStatsEventsShareAReader(t *testing.T) {
	b := setupTwoWith(t, func(c *httpapi.Config) { c.Streams.KeepAlive = 100 * time.Millisecond })
	b.pipe()
	ctx, cancel := context.WithCancel(t.Context())
	for range 10 {
		b.followStats(ctx).stats("all")
	}
	other := b.newToken("other", auth.ScopeRead)
	e, _ := b.stream(ctx, other, "/v1/stats/events", "")
	assert.Empty(t, e.stats("all"), "tenants don't mix")
	assert.Equal(t, 2, b.server.StatsFeeds())
	cancel()
	require.Eventually(t, func() bool { return b.server.StatsFeeds() == 0 }, patience,
		10*time.Millisecond)
}

func TestStatsEventsRefused(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.Streams.Max, c.Streams.MaxPerTenant = 4, 1 })
	assert.Equal(t, 403,
		b.callAs(b.newToken("acme", auth.ScopeSubmit), "GET", "/v1/stats/events", "").status)
	b.followStats(t.Context()).stats("all")
	a := b.call("GET", "/v1/stats/events", "")
	assert.Equal(t, []any{429, "rate_limited"}, []any{a.status, a.problem.Code})
	assert.Equal(t, 1, b.server.StatsFeeds())
}

// A stream ends when its tenant is suspended.
func TestStatsEventsEnd(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.Streams.KeepAlive = 100 * time.Millisecond })
	b.pipe()
	e := b.followStats(t.Context())
	e.stats("all")
	require.Equal(t, 200, b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme",
		`{"suspended":true}`).status)
	for {
		if _, err := e.next(); err != nil {
			break
		}
	}
	assert.Equal(t, 403, b.call("GET", "/v1/stats/events", "").status)
}
