package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A node isn't ready while the pooled way to the database is silent: calls and tasks go over it.
func TestPingAsksThePooledWay(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	network, through := pgtest.Behind(t, url)
	s, err := store.Open(t.Context(), store.Config{URL: url, PooledURL: through, Node: "node-1"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Ping(t.Context()))
	network.Silence()
	require.Error(t, s.Ping(t.Context()))
	network.Heal()
	eventually(t, "the pooled way to come back", func() bool {
		return s.Ping(t.Context()) == nil
	})
}
