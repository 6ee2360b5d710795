package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// The last hours of many tenants are read in transactions of several; after a failure the ones of
// before are there.
func TestTenantHours(t *testing.T) {
	b := setup(t)
	b.SetTenantsAtOnce(2)
	for n := range 3 {
		_, err := store.CreateTenant(t.Context(), b.url, fmt.Sprintf("t%d", n))
		require.NoError(t, err)
	}
	require.NoError(t, b.Catalog.Refresh(t.Context()))
	names := []string{"acme", "other", "t0", "t1", "t2"}
	for _, name := range []string{"acme", "t1"} {
		b.putOf(name, twoStages())
		_, err := b.db.Exec(t.Context(), `INSERT INTO tenant_`+name+`.tallies
			(type, at, failed, attempts) SELECT 'pipe', now() - n * interval '1 min', 4, 4
			FROM unnest(ARRAY[5, 50, 70]) n`)
		require.NoError(t, err)
		_, err = b.RecordHistory(t.Context(), name, time.Time{})
		require.NoError(t, err)
	}
	hours, err := b.TenantHours(t.Context(), names)
	require.NoError(t, err)
	assert.Equal(t, names, slices.Sorted(maps.Keys(hours)))
	for name, h := range hours {
		if name == "acme" || name == "t1" {
			assert.EqualValues(t, 8, h.Failed, name)
			assert.True(t, h.Trouble(), name)
		} else {
			assert.False(t, h.Trouble(), name)
		}
	}
	_, err = b.db.Exec(t.Context(), `DROP TABLE tenant_t1.type_history`)
	require.NoError(t, err)
	hours, err = b.TenantHours(t.Context(), names)
	require.ErrorContains(t, err, "tenant_t1.type_history")
	assert.Equal(t, []string{"acme", "other"}, slices.Sorted(maps.Keys(hours)))
}
