package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fairCost returns how many blocks of the ready table and its indexes leases of a new node read.
// Its connections tell the database when they are closed.
func (b *bundle) fairCost(leases, n int) (blocks int64) {
	b.t.Helper()
	const sql = `SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
		FROM pg_statio_all_tables WHERE schemaname = 'tenant_acme' AND relname = 'ready_1'`
	b.flushed()
	var before int64
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), sql).Scan(&before))
	b.t.Run("node", func(t *testing.T) {
		node := open(t, b.url, "node-2")
		for range leases {
			require.Len(t, node.fairLease(n), n)
		}
	})
	var last int64
	eventually(b.t, "the connections have told what they read", func() bool {
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), sql).Scan(&blocks))
		settled := blocks == last && blocks > before
		last = blocks
		return settled
	})
	return blocks - before
}

// flushed closes the connections of the test, which tell the database what they read as they end.
func (b *bundle) flushed() {
	b.t.Helper()
	var pids []uint32
	for _, conn := range b.db.AcquireAllIdle(b.t.Context()) {
		pids = append(pids, conn.Conn().PgConn().PID())
		conn.Release()
	}
	b.db.Reset()
	eventually(b.t, "the connections are closed", func() bool {
		var open bool
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT EXISTS (SELECT FROM
			pg_stat_activity WHERE pid = ANY ($1::bigint[]::int[]))`, pids).Scan(&open))
		return !open
	})
}

// A lease reads as much with 50,000 keys as with 500 that have as many tasks together.
func TestFairCostOfManyKeys(t *testing.T) {
	b := setup(t)
	b.put(fairStages(nil))
	var cost []int64
	for _, fill := range []struct{ keys, tasks int }{{500, 200}, {50_000, 2}} {
		b.exec(b.at(1, `TRUNCATE {ready}, {task}, {lease}`))
		b.fillKeys(1, fill.keys, fill.tasks)
		cost = append(cost, b.fairCost(5, 100))
	}
	t.Log("blocks of 5 leases:", cost)
	assert.Less(t, 2*cost[1], 3*cost[0], "it has a hundred times as many keys")
}

// While an old snapshot keeps the entries of tasks that were leased, leases don't read these again
// and again.
func TestFairCostDuringAnOldSnapshot(t *testing.T) {
	b := setup(t)
	b.put(fairStages(nil))
	b.fillKeys(1, 2, 150_000)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM
		asyncflow.tenants`)
	require.NoError(t, err)
	_, err = b.db.Exec(t.Context(), b.at(1, `DELETE FROM {ready} WHERE id % 150000 < 140000`))
	require.NoError(t, err)
	blocks := b.fairCost(30, 10)
	t.Log("blocks of 30 leases:", blocks)
	assert.Less(t, blocks, int64(300_000)) // without marks 570,000
}

// The same holds beside thousands of keys with tasks that are due later, where leases don't find
// all keys.
func TestFairCostBesideIdleKeysDuringAnOldSnapshot(t *testing.T) {
	b := setup(t)
	b.put(fairStages(nil))
	b.fillDueLater(5000)
	b.fillKey("big", 150_000)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM
		asyncflow.tenants`)
	require.NoError(t, err)
	b.exec(b.at(1, `DELETE FROM {ready} WHERE key = 'big' AND id IN (
		SELECT id FROM {ready} WHERE key = 'big' ORDER BY id LIMIT 140000)`))
	blocks := b.fairCost(30, 10)
	t.Log("blocks of 30 leases:", blocks)
	assert.Less(t, blocks, int64(200_000)) // without the bound 268,000
}
