package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// holdKeys has an open transaction hold keys by SQL.
func (b *bundle) holdKeys(n int) pgx.Tx {
	b.t.Helper()
	tx, err := b.app().Begin(b.t.Context())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	for i := range n {
		_, err := b.bySQL(tx, fmt.Sprintf(`'pipe', '1', key => 'held-%d'`, i))
		require.NoError(b.t, err)
	}
	return tx
}

func (b *bundle) submitKey(key string) store.Submitted {
	return b.Submit(context.Background(), tenant, []asyncflow.NewTask{withKey(key, `1`)})[0]
}

// lockWaits returns how many of the node's statements have waited for a lock for a while.
func (b *bundle) lockWaits() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'asyncflow' AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '100 ms'`).Scan(&n))
	return n
}

// While callers repeat keys that an open transaction holds, no batch waits for them, so that those
// with other keys don't either.
func TestHeldKeysStallNobody(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.holdKeys(2)
	var refused atomic.Int64
	over := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 2 {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(b.submitKey(fmt.Sprintf("held-%d", i)).Err))
				refused.Add(1)
			}
		})
	}
	for refused.Load() == 0 { // as they have begun to repeat
		require.NoError(t, b.submitKey("before").Err)
	}
	const others = 60
	waits := 0
	for i := range others {
		require.NoError(t, b.submitKey(fmt.Sprintf("other-%d", i)).Err)
		if b.lockWaits() > 0 {
			waits++
		}
	}
	assert.Less(t, waits, others/4, "much of the time a batch waited for a key")
	close(over)
	callers.Wait()
}

// Many keys that are held with others in one batch are put aside, and answered when they are free.
func TestHeldKeysAreAnsweredWhenFree(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	const held = 3 * store.HeldMost
	tx := b.holdKeys(held)
	var tasks []asyncflow.NewTask
	for i := range held {
		tasks = append(tasks, withKey(fmt.Sprintf("held-%d", i), `1`), withKey(fmt.Sprintf("free-%d", i), `1`))
	}
	free := make(chan []store.Submitted, 1)
	go func() { free <- b.Submit(context.Background(), tenant, tasks) }()
	eventually(t, "the others are written", func() bool {
		var n int
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM tenant_acme.idempotency_keys WHERE key LIKE 'free-%'`).Scan(&n))
		return n == held
	})
	require.NoError(t, tx.Commit(t.Context()))
	for i, r := range <-free {
		if i%2 == 0 && r.Err != nil { // too late
			assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(r.Err))
			continue
		}
		assert.NoError(t, r.Err)
		assert.Equal(t, i%2 == 0, r.Existing)
	}
	eventually(t, "nothing is aside", func() bool { return b.Aside() == 0 })
}

// What may be aside is bounded, by number and by bytes: more is refused at once.
func TestAsideIsBounded(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.holdKeys(1)
	var callers sync.WaitGroup
	var most atomic.Int64
	for range 2 * store.AsideMost {
		callers.Go(func() {
			assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(b.submitKey("held-0").Err))
			most.Store(max(most.Load(), int64(b.Aside())))
		})
	}
	eventually(t, "some are aside", func() bool { return b.Aside() > 0 })
	for b.Aside() > 0 {
		require.LessOrEqual(t, b.Aside(), store.AsideMost)
	}
	callers.Wait()
	assert.LessOrEqual(t, most.Load(), int64(store.AsideMost))
}
