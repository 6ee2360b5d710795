package store_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// A tenant with reads that all wait for a lock leaves connections for the others.
func TestATenantLeavesConnectionsForOthers(t *testing.T) {
	b := setupTwo(t)
	for _, name := range []string{tenant, "other"} {
		_, _, err := b.PutTaskType(t.Context(), name, twoStages())
		require.NoError(t, err)
	}
	own := b.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})[0]
	require.NoError(t, own.Err)
	others := b.Submit(t.Context(), "other", []asyncflow.NewTask{newTask(`2`)})[0]
	require.NoError(t, others.Err)
	pgtest.Hold(t, b.url, `LOCK TABLE tenant_`+tenant+`.task_1 IN ACCESS EXCLUSIVE MODE`)

	reading, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	for range 100 {
		readers.Go(func() {
			for reading.Err() == nil {
				_, _ = b.Task(reading, tenant, own.ID)
			}
		})
	}
	eventually(t, "the tenant has its share", func() bool {
		return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) >= b.PoolShare()
	})
	for range 20 {
		_, err := b.Task(t.Context(), "other", others.ID)
		require.NoError(t, err)
	}
}
