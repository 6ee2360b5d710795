package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// A survey covers all tenants, in as many statements as it takes.
func TestManyTenants(t *testing.T) {
	b := setup(t)
	for n := range 60 {
		_, err := store.CreateTenant(t.Context(), b.url, fmt.Sprintf("t%02d", n))
		require.NoError(t, err)
	}
	require.NoError(t, b.Catalog.Refresh(t.Context()))
	for _, name := range []string{"t03", "t55"} {
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
	tenants, err := b.TenantsToExpire(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"t03", "t55"}, tenants)
	unfolded, err := b.Unfolded(t.Context())
	require.NoError(t, err)
	assert.Len(t, unfolded, 62)
	for name, u := range unfolded {
		if name == "t03" || name == "t55" {
			assert.Equal(t, int64(1), u.Rows)
			assert.True(t, u.Last.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		} else {
			assert.Zero(t, u.Rows)
			assert.Zero(t, u.Last)
		}
	}
}
