package catalog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A worker that doesn't answer has a node read all places at once while tenants are there. After
// another server took its place (citus_update_node), no place names it, and it may never answer
// again: then it brings no further reading.
func TestReplacedWorkerIsNotLost(t *testing.T) {
	t.Parallel()
	group := &postgres.PoolGroup{}
	config := postgres.PoolConfig{URL: "postgres://127.0.0.1:1/none", Size: 1, Group: group}
	pool, err := postgres.NewHotPool(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	base, err := postgres.NewPool(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(base.Close)

	old := postgres.Server{Host: "127.0.0.1", Port: 1}
	was := &worker{Server: old, pool: pool}
	was.reached.Store(true)
	w := newWorkers(&Core{Base: base, Roles: &postgres.Roles{}})
	w.known.Store(&placements{servers: []*worker{was}})
	w.read = time.Now().Add(time.Hour) // so that no other reason to read them comes in this test
	w.found["acme"] = place{server: old}
	_, err = w.look(t.Context())
	require.NoError(t, err, "all is well")

	group.Reset() // as after a connection that was silent
	_, err = w.look(t.Context())
	require.ErrorContains(t, err, "look where tenants are", "it tries to read the places")

	w.found["acme"] = place{server: postgres.Server{Host: "127.0.0.1", Port: 2}}
	looked, err := w.look(t.Context())
	require.NoError(t, err)
	assert.False(t, looked)
	assert.True(t, pool.Suspicious(), "the old one still is")
}
