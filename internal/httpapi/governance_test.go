package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

func TestGovernance(t *testing.T) {
	b := setup(t)
	assert.Equal(t, 403, b.call("GET", "/v1/governance", "").status, "it is no tenant's")
	admin := b.adminToken()
	g := read[api.Governance](b, 200, b.callAs(admin, "GET", "/v1/governance", ""))
	assert.Empty(t, g.Nodes)
	require.Greater(t, len(g.Jobs), 6)
	assert.Equal(t, api.Job{Name: "rescue", Schedule: "@every 1s", Outcome: api.JobOutcomeNever},
		g.Jobs[0])
	now := b.store.Clock.Now()
	require.NoError(t, b.store.RecordJob(t.Context(),
		store.JobRun{Name: "rescue", Spec: "@every 1s", Started: now,
			Duration: 20 * time.Millisecond, Rows: 7, Error: "no"}, 2))
	_, err := b.db.Exec(t.Context(),
		`INSERT INTO asyncflow.nodes VALUES ('a', 'api,governance', 'v1', now(), now())`)
	require.NoError(t, err)
	c, err := client.New(b.url, admin)
	require.NoError(t, err)
	g, err = c.Governance(t.Context())
	require.NoError(t, err)
	job := g.Jobs[0]
	assert.WithinDuration(t, time.Now(), job.NextAt, patience)
	job.NextAt, job.StartedAt = time.Time{}, job.StartedAt.UTC()
	assert.Equal(t, api.Job{Name: "rescue", Schedule: "@every 1s", Outcome: api.JobOutcomeFailed,
		Node: "node-1", StartedAt: now, DurationMs: 20, Rows: 7, Error: "no", Failures: 1 + 1}, job)
	require.Len(t, g.Nodes, 1)
	_, err = b.db.Exec(t.Context(), `INSERT INTO asyncflow.nodes VALUES
		('b', 'api,dispatcher', 'v2', now(), now()),
		('gone', 'api', 'v0', now(), now() - interval '1 h')`)
	require.NoError(t, err)
	a := b.callAs(b.newToken("acme", auth.ScopeRead), "GET", "/v1/nodes", "")
	require.Equal(t, 200, a.status)
	assert.JSONEq(t, `{"alive":2,"gone":1,"roles":{"api":2,"dispatcher":1,"governance":1},
		"versions":["v1","v2"]}`, string(a.body), "no names")
	assert.Equal(t, 403, b.callAs(admin, "GET", "/v1/nodes", "").status, "it is a tenant's")
	assert.Equal(t, 403,
		b.callAs(b.newToken("acme", auth.ScopeManage), "GET", "/v1/nodes", "").status)
	assert.Equal(t, []string{"api", "governance"}, g.Nodes[0].Roles)
	assert.Equal(t, api.StateAlive, g.Nodes[0].State)
}
