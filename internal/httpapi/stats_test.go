package httpapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestStats(t *testing.T) {
	b := setup(t)
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

func TestStatsRefused(t *testing.T) {
	b := setup(t)
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
