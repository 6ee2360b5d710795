package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// Everything also runs without database roles, with a warning; migrate up turns them on.
func TestDatabaseRolesOff(t *testing.T) {
	t.Parallel()
	w := startWorker(t,
		func(w http.ResponseWriter, _ *http.Request,
			_ delivery) {
			w.WriteHeader(http.StatusNoContent)
		})
	url := pgtest.Database(t, nil)
	off := append(nodeEnv(url), "ASYNCFLOW_DATABASE_ROLES=off")
	run := func(env []string, code int, args ...string) string {
		t.Helper()
		p := start(t, env, args...)
		require.Equal(t, code, p.wait(), p.said())
		return p.said()
	}
	run(off, 0, "migrate", "up")
	run(off, 0, "tenants", "create", testTenant)
	run(off, 0, "governance", "status")
	says := run(nodeEnv(url), exitUnavailable, "serve")
	assert.Contains(t, says, "asyncflow migrate up, or do without: --database-roles=off")
	run(nodeEnv(url), exitUnavailable, "governance", "status")
	p := startNode(t, url, "--database-roles=off")
	assert.Contains(t, p.said(), "database roles are off")
	w.pipe(t, p.client(), oneStage())
	submitMany(t, p.client(), 3)
	p.kill()

	run(nodeEnv(url), 0, "migrate", "up")
	p = startNode(t, url)
	assert.NotContains(t, p.said(), "database roles are off")
	submitMany(t, p.client(), 3)
	run(nodeEnv(url), exitUsage, "migrate", "up", "--database-roles=maybe")
}
