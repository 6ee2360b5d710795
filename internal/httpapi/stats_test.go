package httpapi_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

func TestStats(t *testing.T) {
	b := setupTwo(t)
	assert.JSONEq(t, `{"data":[]}`, string(b.call("GET", "/v1/stats", "").body))
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/idle",
		`{"stages":[{"name":"only"}]}`).status)
	b.failSecond()
	_, err := b.db.Exec(t.Context(), `UPDATE tenant_acme.tallies SET at = now() - interval '90 s'`)
	require.NoError(t, err)
	id, _ := b.submitOne()
	require.Equal(t, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"delay":"1h"}`).status)

	a := b.call("GET", "/v1/stats", "")
	list := read[api.StatsList](b, 200, a)
	require.Len(t, list.Data, 2)
	idle, pipe := list.Data[0], list.Data[1]
	first := read[struct{ Data []json.RawMessage }](b, 200, a).Data[0]
	assert.JSONEq(t, `{"type":"idle","waiting":0,"pending":0,"running":0,
		"succeeded":0,"failed":0,"cancelled":0,
		"rates":{"submitted":0,"attempts":0,"failures":0,"snoozes":0,"finished":0},"rolls":1}`,
		string(first))
	assert.Equal(t, "idle", idle.Type)
	task := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, ""))
	assert.WithinDuration(t, task.CreatedAt, pipe.OldestDue, 0)
	assert.Equal(t, []api.Backlog{{WaitsFor: "endpoint", Tasks: 1, OldestDue: pipe.OldestDue}},
		pipe.Backlog)
	pipe.OldestDue, pipe.Backlog = time.Time{}, nil
	assert.Equal(t, api.Stats{Type: "pipe", Waiting: 1, Pending: 1, Failed: 1, Rolls: 1,
		Rates: api.Rates{Submitted: 2. / 60}}, pipe)

	assert.Equal(t, list.Data[:1],
		read[api.StatsList](b, 200, b.call("GET", "/v1/stats?type=idle", "")).Data)
	assert.Empty(t, read[api.StatsList](b, 200,
		b.callAs(b.newToken("other", auth.ScopeRead), "GET", "/v1/stats", "")).Data,
		"tenants don't mix")
}

// Stats say how long tasks were due before they began, by stage, and how long they took. A task and
// its attempts show their own times.
func TestTimesInStats(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	for _, change := range []string{
		`UPDATE tenant_acme.ready_1 SET order_time = now() - interval '1 min'`,
		`UPDATE tenant_acme.task_1 SET created_at = now() - interval '1 h',
		  order_time = now() - interval '1 min'`} {
		_, err := b.db.Exec(t.Context(), change)
		require.NoError(t, err)
	}
	for _, stage := range []string{"first", "second"} {
		l, token := b.lease()
		require.Equal(t, stage, l.Stage)
		b.store.CountDeliveries(store.TypeKey{Tenant: "acme", Type: "pipe"},
			[]asyncflow.Delivery{{Lease: l, At: b.store.Clock.Now()}})
		if stage == "first" {
			require.NotNil(t, b.task(id).Run.WaitMs)
			assert.InDelta(t, 60_000, *b.task(id).Run.WaitMs, 30_000)
		}
		require.Equal(t, 200, b.callAs(token, "POST", path+"/complete", "").status)
	}
	assert.InDelta(t, 3_600_000, b.task(id).TurnaroundMs, 60_000)
	all := b.attempts(id)
	require.Len(t, all, 2)
	require.NotNil(t, all[1].WaitMs)
	assert.Less(t, *all[1].WaitMs, float32(30_000))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.store.Run(ctx) }() // it writes the minutes
	defer func() {
		stop()
		require.NoError(t, <-done)
	}()
	var s api.Stats
	require.Eventually(t, func() bool {
		s = read[api.StatsList](b, 200, b.call("GET", "/v1/stats?type=pipe", "")).Data[0]
		return len(s.StageWaits) == 2 && s.Turnaround.P50Ms > 0
	}, patience, 100*time.Millisecond)
	assert.InDelta(t, 60_000, s.Wait.P99Ms, 30_000)
	assert.InDelta(t, 3_600_000, s.Turnaround.P50Ms, 600_000)
	assert.Equal(t, []string{"first", "second"},
		[]string{s.StageWaits[0].Stage, s.StageWaits[1].Stage})
	assert.InDelta(t, 60_000, s.StageWaits[0].P50Ms, 30_000)
	assert.Less(t, s.StageWaits[1].P99Ms, float32(30_000))
}

func TestStatsRefused(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	a := b.call("GET", "/v1/stats?type=nope", "")
	require.Equal(t, 404, a.status)
	assert.Equal(t, "type", a.problem.Errors[0].Field)
	assert.Equal(t, 404, b.callAs(b.newToken("other", auth.ScopeRead), "GET", "/v1/stats?type=pipe",
		"").status, "another tenant's type")
	assert.Equal(t, 403, b.callAs(b.newToken("acme", auth.ScopeSubmit), "GET", "/v1/stats",
		"").status)
	assert.Equal(t, 200, b.callAs(b.newToken("acme", auth.ScopeRead), "GET", "/v1/stats",
		"").status)
	for query, field := range map[string]string{"type=No": "type", "tpye=pipe": "tpye"} {
		a := b.call("GET", "/v1/stats?"+query, "")
		require.Equal(t, 400, a.status, query)
		assert.Equal(t, field, a.problem.Errors[0].Field, query)
	}
}
