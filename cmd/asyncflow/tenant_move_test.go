package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Commands that move tenants between workers of Citus.
func TestMoveCommandsOnCitus(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pgtest.OnCitusToo(t, "TestMoveCommands")
}

// Tenants are moved by name and by plan; lists show where they are, and the audit who moved them.
func TestMoveCommands(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestMoveCommandsOnCitus runs it")
	}
	t.Parallel()
	url := pgtest.Database(t, nil)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_DATABASE_ROLES": "off",
		"ASYNCFLOW_URL": closedURL(t)}
	run := func(args ...string) string {
		r := runCLI(t, env, args...)
		require.Zero(t, r.code, r.stderr)
		return r.stdout
	}
	run("migrate", "up")
	for _, name := range []string{"acme", "globex"} {
		run("tenants", "create", name)
	}
	place := func(tenant string) string {
		var doc api.Tenant
		said := run("tenants", "get", tenant, "-o", "json")
		require.NoError(t, json.Unmarshal([]byte(said), &doc))
		return doc.Placement
	}
	workers, err := pgtest.WorkersOf(t.Context(), url)
	require.NoError(t, err)
	var all []string
	for _, worker := range workers {
		cfg, err := pgx.ParseConfig(worker)
		require.NoError(t, err)
		all = append(all, store.Server{Host: cfg.Host, Port: cfg.Port}.String())
	}
	require.Len(t, all, 2)
	require.Contains(t, all, place("acme"))
	other := all[0]
	if place("acme") == other {
		other = all[1]
	}
	r := runCLI(t, env, "tenants", "move", "acme", "--to", other)
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "tenant acme moved from ")
	assert.Regexp(t, `acme: preparing\n(.*\n)*acme: tidying up\n`, r.stderr)
	assert.Equal(t, other, place("acme"))
	assert.Contains(t, run("tenants", "list"), other)
	assert.Contains(t, run("tenants", "get", "acme"), "placement  "+other)
	r = runCLI(t, env, "tenants", "move", "acme", "--to", other)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "already")

	// Both on one worker: one of them should go.
	if place("globex") != other {
		run("tenants", "move", "globex", "--to", other, "-o", "json")
	}
	plan := run("tenants", "rebalance", "--dry-run")
	assert.Contains(t, plan, other)
	assert.Contains(t, run("tenants", "rebalance"), "1 tenants moved\n")
	assert.NotEqual(t, place("acme"), place("globex"))
	assert.Contains(t, run("tenants", "rebalance"), "0 tenants moved\n")

	// A plan with the coordinator is refused before its first move.
	exec := func(sql string) {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	run("tenants", "move", "acme", "--to", place("globex"))
	shards := func(coordinator, empty bool) {
		exec(fmt.Sprintf(`SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards',
			CASE groupid WHEN 0 THEN %t ELSE %t END) FROM pg_dist_node
			WHERE nodename || ':' || nodeport <> '%s'`, coordinator, empty, place("globex")))
	}
	shards(true, false)
	r = runCLI(t, env, "tenants", "rebalance")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "is the coordinator")
	assert.NotContains(t, r.stderr, "preparing")
	shards(false, true)

	// The moves before one that fails are listed.
	for _, name := range []string{"initech", "umbrella"} {
		run("tenants", "create", name)
		if place(name) != place("globex") {
			run("tenants", "move", name, "--to", place("globex"))
		}
	}
	var planned listing[plannedDocument]
	said := run("tenants", "rebalance", "--dry-run", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(said), &planned))
	require.GreaterOrEqual(t, len(planned.Data), 2)
	exec(`UPDATE asyncflow.tenants SET deleted_at = now(), drop_at = now(), dropping_at = now()
		WHERE slug = '` + planned.Data[1].Tenant + `'`)
	r = runCLI(t, env, "tenants", "rebalance", "-o", "json")
	assert.Equal(t, 1, r.code)
	var made listing[movedDocument]
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &made))
	require.Len(t, made.Data, 1)
	assert.Equal(t, planned.Data[0].Tenant, made.Data[0].Tenant)

	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "reader", NoRoles: true})
	require.NoError(t, err)
	defer s.Close()
	entries, err := s.Audit(t.Context(), store.AuditFilter{Limit: 100, Action: "tenant.move"})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(entries), 3)
	first, second := entries[len(entries)-1], entries[len(entries)-2]
	assert.Equal(t, asyncflow.AuditDone, first.Outcome)
	assert.Equal(t, "acme", first.Object)
	assert.Equal(t, other, first.Detail["to"])
	assert.NotEmpty(t, first.Detail["pause"])
	assert.Equal(t, asyncflow.AuditRefused, second.Outcome)
}

// Without Citus these commands say so; what isn't a server is a usage error.
func TestMoveCommandsWithoutCitus(t *testing.T) {
	t.Parallel()
	if pgtest.OnCitus() {
		t.Skip("there is Citus")
	}
	url := database(t)
	r := tenants(t, url, "move", "acme", "--to", "worker-2:5432")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "no extension Citus")
	r = tenants(t, url, "rebalance", "--dry-run")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "no extension Citus")
	for _, to := range []string{"", "worker-2:0", "worker-2:none", ":5432", "worker-2:70000"} {
		r = tenants(t, url, "move", "acme", "--to", to)
		assert.Equal(t, exitUsage, r.code, to)
		assert.Contains(t, r.stderr, "--to")
	}
	r = tenants(t, url, "move", "acme", "--to", "worker-2", "--max-pause", "0s")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "--max-pause")
}
