package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A tenant with many tables and much data moves.
func TestMoveOfALargeTenantOnCitus(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pgtest.OnCitusToo(t, "TestMoveOfALargeTenant")
}

// A tenant with many tables and many tasks moves under load, and its writes are blocked for no
// longer than those of a small one. The long form has more than 300 tables and a million tasks.
func TestMoveOfALargeTenant(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, done200)
	for i := range longform.Size(5, 90) {
		require.NoError(t, n.putType(t, fmt.Sprintf("own-%d", i), 12345+i))
	}
	tasks := longform.Size(20_000, 1_000_000)
	m.fill(tasks)
	load, stop := context.WithCancel(t.Context())
	var submitting sync.WaitGroup
	var longest, submitted atomic.Int64
	for range 2 {
		submitting.Go(func() {
			for load.Err() == nil {
				began := time.Now()
				got := n.submitSome(t, 10)
				took := int64(time.Since(began))
				for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); {
					old = longest.Load()
				}
				submitted.Add(int64(len(got)))
				n.awaitAll(t, got)
			}
		})
	}
	for range longform.Size(1, 4) {
		longest.Store(0)
		moved, err := m.move(10*time.Second, func(p store.MoveProgress) { t.Logf("%+v", p) })
		require.NoError(t, err)
		require.NoError(t, moved.TidyError)
		t.Logf("%d tables and %d tasks in %v, writes blocked for %v; longest submit %v; "+
			"%d submitted", moved.Tables, tasks, moved.Took, moved.Pause,
			time.Duration(longest.Load()), submitted.Load())
	}
	stop()
	submitting.Wait()
	assert.Equal(t, tasks, m.count(`tenant_acme.task_1 WHERE id >= (1::bigint << 40) + 1000000000`))
	m.noLeftovers()
}

// fill adds finished tasks, each with its row in the journal.
func (m *movable) fill(tasks int) {
	m.t.Helper()
	const each = 100_000
	for from := 0; from < tasks; from += each {
		rows := fmt.Sprintf(`(1::bigint << 40) + 1000000000 + n, %s FROM tenant_acme.numbering,
			generate_series(%d, %d) n`, "%s", from, min(from+each, tasks)-1)
		m.quietly(fmt.Sprintf(`INSERT INTO tenant_acme.task_1 (type, id, created_at, order_time,
			context) SELECT 1, `+rows, `'2026-11-30'::timestamptz, '2026-11-30'::timestamptz,
			'"' || repeat('x', 100) || '"'`),
			fmt.Sprintf(`INSERT INTO tenant_acme.journal_1 (type, id, seq, at, stage, attempt,
			outcome, final) SELECT 1, `+rows, `1, '2026-11-30'::timestamptz, 'second', 1, 'done',
			'succeeded'`))
	}
}
