package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
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

// A lease reads as much with 20,000 keys as with 500 of as many tasks together. With 40,000 tasks
// the index with the keys is a level higher than the one without.
func TestFairCostOfManyKeys(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(fairStages(nil))
	var cost []int64
	for _, fill := range []struct{ keys, tasks int }{{500, 80}, {20_000, 2}} {
		b.exec(b.at(1, `TRUNCATE {ready}, {task}, {lease}`))
		b.fillKeys(1, fill.keys, fill.tasks)
		cost = append(cost, b.fairCost(5, 100))
	}
	t.Log("blocks of 5 leases:", cost)
	assert.Less(t, cost[0], int64(50_000)) // by the other index 9,968,000
	assert.Less(t, 2*cost[1], 3*cost[0], "it has forty times as many keys")
}

// While an old snapshot keeps the entries of tasks that were leased, leases don't read these again
// and again.
func TestFairCostDuringAnOldSnapshot(t *testing.T) {
	longform.Costly(t)
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
	longform.Costly(t)
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

// wayOf puts a type, and returns the statements on the way of a task with a flow key: its submit,
// its lease and its end.
func (b *bundle) wayOf(noted *pgtest.Statements, name string, flow *asyncflow.Flow) []string {
	b.t.Helper()
	spec := single()
	spec.Name = name
	spec.Flow = flow
	kind := b.put(spec)
	var all []string
	for _, key := range []string{"a", "b"} { // first, connections and ids are prepared
		all = ran(noted, func() {
			task := keyed(key, `1`)
			task.Type = name
			b.submit(task)
			var leases []asyncflow.Lease
			if flow == nil {
				leases = b.lease(kind, 1)
			} else {
				leases = b.leaseLimitedOf(kind, 1, &doorman{})
			}
			require.Len(b.t, leases, 1)
			b.settle(kind, leases[0], doneWith(`2`))
		})
	}
	return all
}

// Types without turns pay nothing for them: their tasks need the statements that they needed before
// there were turns, and none of these reads or writes the state of turns.
func TestTypesWithoutTurnsPayNothing(t *testing.T) {
	b, noted := setupNoted(t)
	turns := func(all []string) (some int) {
		for _, sql := range all {
			if strings.Contains(sql, "flow_turns") {
				some++
			}
		}
		return some
	}
	plain := b.wayOf(noted, "plain", nil)
	counts(t, "submit: 4, lease: 6, end: role, lease, journal, tally", plain, 14)
	limited := b.wayOf(noted, "limited", &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 9}})
	fair := b.wayOf(noted, "fair", &asyncflow.Flow{Fair: asyncflow.FairKeyFirst})
	assert.Equal(t, []int{0, 0, 2}, []int{turns(plain), turns(limited), turns(fair)},
		"a fair type reads the state, and writes it")
	eventually(t, "the same beside a fair type, when the node does nothing else", func() bool {
		return slices.Equal(plain, b.wayOf(noted, "plain", nil))
	})
}
