package governance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A tenant is dropped in steps. If one is interrupted, another node goes on. The name is free when
// everything is gone, and ids don't repeat.
func TestDropInSteps(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	const types = 24
	for i := range types {
		a.ownPipe(t, fmt.Sprint("pipe", i))
	}
	_, err := a.OpenRoll(t.Context(), a.ownPipe(t, "pipe0").Set())
	require.NoError(t, err)
	_, err = a.DeleteTenant(t.Context(), tenant, new(time.Duration))
	require.NoError(t, err)
	since, err := a.BeginDrop(t.Context(), tenant)
	require.NoError(t, err)
	require.False(t, since.IsZero())
	_, known := a.Catalog.Tenant(tenant)
	assert.False(t, known, "no node knows it from then on")
	_, err = a.RestoreTenant(t.Context(), tenant)
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	version := versionOf(t, url)
	steps, before := 0, tables(t, url)
	require.Greater(t, before, 3*types)
	for left := true; left; steps++ {
		// Each step by another node; every second one is killed before it ends.
		b := setup(t, url, fmt.Sprint("node", steps), governance.Config{})
		_, err = store.CreateTenant(t.Context(), url, tenant, noRoles())
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
		_, err = store.Migrate(t.Context(), url, noRoles())
		require.NoError(t, err)
		broken, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = b.DropStep(broken, tenant)
		require.Error(t, err)
		step, err := b.DropStep(t.Context(), tenant)
		require.NoError(t, err)
		now := tables(t, url)
		assert.LessOrEqual(t, before-now, 22, "few tables at once, so few locks")
		before, left = now, step.Left
	}
	assert.Greater(t, steps, types*3/20)
	assert.Zero(t, before)
	_, err = a.Tenant(t.Context(), tenant)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	since, err = a.BeginDrop(t.Context(), tenant)
	require.NoError(t, err)
	assert.Zero(t, since, "there is nothing left to drop")

	created, err := store.CreateTenant(t.Context(), url, tenant, noRoles())
	require.NoError(t, err)
	assert.True(t, created)
	assert.Greater(t, versionOf(t, url), version,
		"a node that has slept through all of it takes it for no other one")
	require.NoError(t, a.Catalog.Refresh(t.Context()))
	for range 2 {
		r := a.Submit(t.Context(), tenant,
			[]asyncflow.NewTask{{Type: a.pipe(t, "pipe7").Name, Context: []byte(`1`)}})[0]
		require.NoError(t, r.Err)
		assert.Equal(t, 3, r.ID.Position(),
			"after all positions that any type of the tenant before had")
	}
}

// versionOf returns the version of the tenant's configuration.
func versionOf(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t,
		conn.QueryRow(t.Context(), `SELECT version FROM asyncflow.tenants WHERE slug = 'acme'`).Scan(&n))
	return n
}

// tables counts the tables of the tenant.
func tables(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t,
		conn.QueryRow(t.Context(),
			`SELECT count(*) FROM pg_tables WHERE schemaname = 'tenant_acme'`).Scan(&n))
	return n
}

// A tenant that was restored in time is not dropped, and neither is one before the end of its
// grace.
func TestGrace(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	grace := time.Hour
	_, err := b.DeleteTenant(t.Context(), tenant, &grace)
	require.NoError(t, err)
	n, err := b.jobs["drop-tenants"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	since, err := b.BeginDrop(t.Context(), tenant)
	require.NoError(t, err)
	assert.Zero(t, since)
	exec(t, url, `UPDATE asyncflow.tenants SET drop_at = now() - interval '1 s'`)
	_, err = b.RestoreTenant(t.Context(), tenant)
	require.NoError(t, err, "until a drop has begun")
	n, err = b.jobs["drop-tenants"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	left, err := b.DropStep(t.Context(), tenant)
	require.NoError(t, err)
	assert.Zero(t, left, "a step drops nothing of a tenant that isn't being dropped")
	assert.NotZero(t, tables(t, url))
}
