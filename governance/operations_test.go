package governance_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Every node with the job advances operations of all tenants, at their pace, until they are done
// or stopped. Long after that they are deleted.
func TestOperations(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	pipe := a.pipe(t, "pipe")
	b := setup(t, url, "b", governance.Config{})
	a.submitAndLease(t, pipe, 450)
	begin := func(filter store.Filter, pace float64) store.Operation {
		filter.Type = "pipe"
		o, err := a.StartOperation(t.Context(), tenant,
			store.NewOperation{Kind: store.CancelTasks, Filter: filter, Pace: pace})
		require.NoError(t, err)
		return o
	}
	slow := begin(store.Filter{Status: asyncflow.StatusRunning}, 0.01)
	n, err := a.jobs["operations"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n, "one, and the next one is due much later")
	n, err = b.jobs["operations"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	begin(store.Filter{}, 0)
	begin(store.Filter{Stage: "only"}, 500)
	var mu sync.Mutex
	var wg sync.WaitGroup
	sum := 1
	for _, node := range []*bundle{a, b} {
		wg.Go(func() {
			n, err := node.jobs["operations"].Run(t.Context())
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			sum += n
		})
	}
	wg.Wait()
	assert.Equal(t, 450, sum)
	all, _, err := a.OperationPage(t.Context(), tenant, store.Place{}, 500)
	require.NoError(t, err)
	for _, o := range all {
		if o.ID == slow.ID {
			assert.Equal(t, store.OperationRunning, o.State)
			continue
		}
		assert.Equal(t, store.OperationDone, o.State)
	}
	exec(t, url, `UPDATE tenant_acme.operations SET finished_at = finished_at - interval '31 d'`)
	n, err = a.jobs["forget"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, n)
}

// A paced operation advances within its turn as its steps become due.
func TestPacedOperation(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.submitAndLease(t, b.pipe(t, "pipe"), 30)
	o, err := b.StartOperation(t.Context(), tenant,
		store.NewOperation{Kind: store.CancelTasks, Filter: store.Filter{Type: "pipe"}, Pace: 20})
	require.NoError(t, err)
	start := b.Clock.Now()
	n, err := b.jobs["operations"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 30, n)
	o, err = b.Operation(t.Context(), tenant, o.ID)
	require.NoError(t, err)
	assert.Equal(t, store.OperationDone, o.State)
	assert.GreaterOrEqual(t, o.FinishedAt.Sub(start), time.Second, "the pace of the first 20")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.StartOperation(t.Context(), tenant,
		store.NewOperation{Kind: store.RedriveTasks,
			Filter: store.Filter{Type: "pipe", Status: asyncflow.StatusCancelled}})
	require.NoError(t, err)
	n, err = b.jobs["operations"].Run(ctx)
	require.Error(t, err)
	assert.Zero(t, n, "a node that stops takes no step")
}
