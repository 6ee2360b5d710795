package governance_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// A run begins no operation once its turn is over. The next one begins with what waits longest.
func TestOperationsInTurn(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.submitAndLease(t, b.pipe(t, "pipe"), 1)
	const all = 6 // more than run at once
	ids := make([]string, all)
	for i := range ids {
		o, err := b.StartOperation(t.Context(), tenant,
			store.NewOperation{Kind: store.CancelTasks, Filter: store.Filter{Type: "pipe"}})
		require.NoError(t, err)
		ids[i] = o.ID
		exec(t, url, fmt.Sprintf(`UPDATE tenant_acme.operations
			SET next_at = now() - interval '%d s' WHERE id = '%s'`, i+1, o.ID))
	}
	running := func() (left []string) {
		for _, id := range ids {
			o, err := b.Operation(t.Context(), tenant, id)
			require.NoError(t, err)
			if o.State == store.OperationRunning {
				left = append(left, id)
			}
		}
		return left
	}
	// A slow machine may begin nothing before a turn is over: then the turn is longer.
	for turn := 200 * time.Millisecond; !b.takeATurn(t, url, turn); turn *= 2 {
		require.Less(t, turn, patience)
	}
	assert.Subset(t, running(), ids[:2], "those that have waited the shortest time")

	b.gov.SetTurn(patience)
	_, err := b.jobs["operations"].Run(t.Context())
	require.NoError(t, err)
	assert.Empty(t, running())
}

// takeATurn runs operations, but lets no step be taken before a turn is over. It reports whether a
// step was begun.
func (b *bundle) takeATurn(t *testing.T, url string, turn time.Duration) (began bool) {
	t.Helper()
	b.gov.SetTurn(turn)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	// Operations can be read, but no step can be taken.
	_, err = tx.Exec(t.Context(), `LOCK TABLE tenant_acme.operations IN EXCLUSIVE MODE`)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.jobs["operations"].Run(t.Context()) // a step may wait too long for its lock
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := tx.QueryRow(t.Context(), `SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&waiting)
		began = err == nil && waiting > 0
		select {
		case <-ended:
			return true
		default:
			return began
		}
	}, patience, 20*time.Millisecond)
	over := b.Clock.Now().Add(turn)
	require.Eventually(t, func() bool { return b.Clock.Now().After(over) },
		patience, 20*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	<-ended
	return began
}

// Operations with steps that fail after a long time, as those that take too long do, don't keep
// others waiting, however long they are due.
func TestOperationsThatStumble(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.submitAndLease(t, b.pipe(t, "pipe"), 1)
	b.gov.SetTurn(200 * time.Millisecond)
	begin := func() store.Operation {
		o, err := b.StartOperation(t.Context(), tenant,
			store.NewOperation{Kind: store.CancelTasks, Filter: store.Filter{Type: "pipe"}})
		require.NoError(t, err)
		return o
	}
	for range 4 { // as many as run at once
		begin()
	}
	exec(t, url, `CREATE FUNCTION tenant_acme.stumble() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_sleep(0.5); RAISE 'it fails'; END $$`)
	exec(t, url, `UPDATE tenant_acme.operations SET next_at = now() - interval '1 h'`)
	exec(t, url, `CREATE TRIGGER stumble BEFORE UPDATE ON tenant_acme.operations FOR EACH ROW
		WHEN (old.next_at < now() - interval '1 min') EXECUTE FUNCTION tenant_acme.stumble()`)
	last := begin()
	// On a slow machine, a turn may be over before the first step, or before all four failed: each
	// run with a failure puts one more behind the last.
	for failed := 0; ; {
		_, err := b.jobs["operations"].Run(t.Context())
		o, err2 := b.Operation(t.Context(), tenant, last.ID)
		require.NoError(t, err2)
		if o.State == store.OperationDone {
			return
		}
		if err != nil {
			require.ErrorContains(t, err, "it fails")
			failed++
		}
		require.LessOrEqual(t, failed, 4, "the last has waited for all of them")
	}
}
