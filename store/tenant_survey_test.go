package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A survey covers all tenants, in as many statements as it takes.
func TestManyTenants(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	n := longform.Size(6, 50) // together with acme more than a statement asks about
	if !longform.Asked() {
		b.SetTenantsAtOnce(3)
	}
	for n := range n {
		_, err := store.CreateTenant(t.Context(), b.url, fmt.Sprintf("t%02d", n),
			store.WithoutRoles(pgtest.NoRoles()))
		require.NoError(t, err)
	}
	require.NoError(t, b.Catalog.Refresh(t.Context()))
	for _, name := range []string{"t03", "t05"} {
		_, err := b.db.Exec(t.Context(), fmt.Sprintf(`
			INSERT INTO tenant_%[1]s.table_sets VALUES ('', 1, 1, 1);
			INSERT INTO tenant_%[1]s.task_types (name, version, spec, table_set, from_pos, created_at,
			    updated_at) VALUES ('x', 1, '{}', '', 1, now(), now());
			INSERT INTO tenant_%[1]s.idempotency_keys (type, key, id, hash, expires_at)
			  VALUES ('x', 'a', 1, '', now() - interval '1 s'), ('x', 'b', 2, '', now() + interval '1 h');
			INSERT INTO tenant_%[1]s.tallies (type, at)
			  VALUES ('x', now()), ('x', '2026-01-02T03:04:05Z')`, name))
		require.NoError(t, err)
	}
	all := slices.Collect(maps.Keys(b.Catalog.Tenants()))
	require.Len(t, all, n+1)
	keys, err := b.FirstKeys(t.Context(), append(all, "gone"))
	require.NoError(t, err)
	assert.Equal(t, []string{"t03", "t05"}, slices.Sorted(maps.Keys(keys)))
	assert.True(t, keys["t05"].Before(b.Clock.Now()))
	tallies, err := b.LastTallies(t.Context(), all)
	require.NoError(t, err)
	assert.Equal(t, []string{"t03", "t05"}, slices.Sorted(maps.Keys(tallies)))
	assert.WithinDuration(t, b.Clock.Now(), tallies["t03"], time.Hour)
	tallies, err = b.LastTallies(t.Context(), []string{"t04"})
	require.NoError(t, err)
	assert.Empty(t, tallies)
}
