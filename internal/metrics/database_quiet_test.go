package metrics

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Tenants without live tasks are counted once, and again when they get some.
func TestQuietTenants(t *testing.T) {
	t.Parallel()
	const tenants = 10
	url := pgtest.Database(t, func(ctx context.Context, url string) error {
		if _, err := store.Migrate(ctx, url); err != nil {
			return err
		}
		for i := range tenants {
			if _, err := store.CreateTenant(ctx, url, fmt.Sprint("t", i)); err != nil {
				return err
			}
		}
		return nil
	})
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "a"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	spec := asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{{Name: "only"}}}
	for i := range tenants {
		_, _, err = s.PutTaskType(t.Context(), fmt.Sprint("t", i), spec.WithDefaults())
		require.NoError(t, err)
	}
	q := newQuietTenants()
	read := func() (live []string, statements int64) {
		before := s.PoolStats()[0].Acquires
		seen := 0
		unread, err := q.read(t.Context(), s, func(tenant string, stats []store.Stats) {
			require.Len(t, stats, 1)
			if seen++; isLive(stats[0]) {
				live = append(live, tenant)
			}
		})
		require.NoError(t, err)
		require.Zero(t, unread)
		require.Equal(t, tenants, seen)
		return live, s.PoolStats()[0].Acquires - before
	}
	live, statements := read()
	assert.Empty(t, live)
	assert.GreaterOrEqual(t, statements, int64(tenants))
	require.Eventually(t, func() bool { // Postgres counts what the node wrote
		_, statements := read()
		return statements == 1
	}, 2*time.Minute, 100*time.Millisecond)

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for _, sql := range []string{
		`INSERT INTO tenant_t3.lease (type, id, seq, stage, attempt, node, leased_at, until)
			SELECT number, 1, 1, 'only', 1, 'n', now(), now() FROM tenant_t3.task_types`,
		`SELECT pg_stat_force_next_flush()`,
	} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for range 2 {
		require.Eventually(t, func() bool { // Postgres may count earlier writes as late as this
			live, statements := read()
			assert.Equal(t, []string{"t3"}, live)
			return statements < int64(tenants)
		}, 2*time.Minute, 100*time.Millisecond)
	}
}
