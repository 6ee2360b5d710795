package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// oldSnapshot holds a snapshot, and leaves the dead entries of many leased rows, so that leases
// are slow until over is called, which cleans them away.
func (b *bundle) oldSnapshot() (over func()) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, sql := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`,
		`SELECT FROM asyncflow.tenants`} {
		_, err = conn.Exec(b.t.Context(), sql)
		require.NoError(b.t, err)
	}
	_, err = b.db.Exec(b.t.Context(), b.at(1, `
		INSERT INTO {ready} SELECT {number}, now() - n * interval '1 ms', n, 1, 'first', 1
		  FROM generate_series(1, 300000) n;
		DELETE FROM {ready}`))
	require.NoError(b.t, err)
	return func() {
		_, err := conn.Exec(b.t.Context(), `COMMIT`)
		require.NoError(b.t, err)
		_, err = b.db.Exec(b.t.Context(), `VACUUM tenant_acme.ready_1`)
		require.NoError(b.t, err)
	}
}

// hide inserts a due row without an announcement.
func (b *bundle) hide(sequence int) (id, order int64) {
	b.t.Helper()
	ready := asyncflow.NewTaskID("pipe", 1, 1000000+int64(sequence)).Number
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), b.at(1, `WITH t AS (
		INSERT INTO {task} (type, id, created_at, order_time, context)
		  VALUES ({number}, $1, now(), now() - interval '10 min', '1') RETURNING *)
		INSERT INTO {ready} SELECT type, order_time, id, 1, 'first', 1 FROM t
		  RETURNING (extract(epoch FROM order_time) * 1e6)::bigint`), ready).Scan(&order))
	return ready, order
}

// While an old snapshot makes leases slow, they begin at a mark. A row below it is leased at
// once if it is announced, by this node or another one, and a little later if not.
func TestLeasesDuringAnOldSnapshot(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	woken := make(chan int64, 100)
	far := openWith(t, b.url, "node-2", func(s *store.Store) {
		listen(t, s, func(_ store.TypeKey, at time.Time) { woken <- at.UnixMicro() }, func() {})
	})
	pipe := b.put(twoStages())
	over := b.oldSnapshot()
	row := 0
	for !b.belowMarks(pipe, far, woken, &row) { // a lease that looks at everything came in between
	}

	over()
	require.Eventually(t, func() bool {
		_, next := b.look(pipe)
		return next.IsZero()
	}, patience, 20*time.Millisecond, "no mark any more")
	row++
	hidden, _ := b.hide(row)
	leases, _ := b.look(pipe)
	require.Len(t, leases, 1)
	assert.Equal(t, hidden, leases[0].ID.Number)
}

func (b *bundle) look(pipe *store.Type) ([]asyncflow.Lease, time.Time) {
	b.t.Helper()
	leases, next, err := b.Lease(b.t.Context(), pipe, 10)
	require.NoError(b.t, err)
	return leases, next
}

// belowMarks inserts rows below the marks of two nodes, and looks what they lease. It is false
// if one of those leases may have looked at everything, as they do once in a while: then what it
// found says nothing.
func (b *bundle) belowMarks(
	pipe *store.Type, far *bundle, woken <-chan int64, row *int,
) bool {
	t, whole := b.t, map[*bundle]time.Time{}
	for _, node := range []*bundle{b, far} {
		leases, next := node.look(pipe) // is slow
		for len(leases) > 0 {
			leases, next = node.look(pipe)
		}
		require.False(t, next.IsZero(), "a lease that looks at everything comes")
		whole[node] = next
	}
	marked := func(node *bundle) ([]asyncflow.Lease, bool) {
		leases, _ := node.look(pipe)
		return leases, b.Clock.Now().Before(whole[node])
	}

	*row++
	hidden, _ := b.hide(*row)
	leases, ok := marked(b)
	if !ok {
		return false
	}
	require.Empty(t, leases, "nobody has announced it, nor does the look at the head find it")
	early := newTask(`1`)
	early.Options.Priority = asyncflow.Priority{300}
	id := b.submit(early)[0].ID
	if leases, ok = marked(b); !ok {
		return false
	}
	require.Len(t, leases, 1, "the mark was lowered by this node, to just where the task is")
	assert.Equal(t, id, leases[0].ID)

	*row++
	told, order := b.hide(*row)
	b.announce(pipe, order)
	for <-woken != order { // the announcement of the other row
	}
	if leases, ok = marked(far); !ok {
		return false
	}
	require.Len(t, leases, 1, "the mark was lowered by another node's announcement")
	assert.Equal(t, told, leases[0].ID.Number)

	for leases = nil; len(leases) == 0; { // until a lease looks at everything
		leases, _ = b.look(pipe)
		time.Sleep(20 * time.Millisecond)
	}
	assert.Equal(t, hidden, leases[len(leases)-1].ID.Number, "after those of the calls before")
	return true
}
