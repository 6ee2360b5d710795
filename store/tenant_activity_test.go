package store_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// A tenant's activity changes with each change of a row in the tables that were asked for, and with
// nothing else.
func TestActivity(t *testing.T) {
	b := setupTwo(t)
	b.put(twoStages())
	conn, err := b.db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
	}
	read := func(of store.Tables) map[string]uint64 {
		t.Helper()
		all, ok, err := b.Activity(t.Context(), of)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, []string{tenant, "other"}, slices.Sorted(maps.Keys(all)))
		return all
	}
	groups := map[string]store.Tables{"tokens": store.TokenTables, "tallies": store.TallyTables,
		"keys": store.KeyTables, "plans": store.PlanTables, "alerts": store.AlertTables,
		"records": store.RecordTables}
	last := map[string]map[string]uint64{}
	changed := func() (names []string) {
		t.Helper()
		for name, of := range groups {
			now := read(of)
			assert.Equal(t, last[name]["other"], now["other"])
			if now[tenant] != last[name][tenant] {
				names = append(names, name)
			}
			last[name] = now
		}
		slices.Sort(names)
		return names
	}
	// The node itself reports what it just wrote.
	for name, of := range groups {
		last[name] = read(of)
	}
	eventually(t, "calm", func() bool { return len(changed()) == 0 })
	exec(`INSERT INTO tenant_acme.lease (type, id, seq, stage, attempt, node, leased_at, until)
		SELECT 1, i, 1, 'first', 1, 'n', now(), now() FROM generate_series(1, 100) i`)
	changed()
	for _, c := range []struct {
		sql  string
		want []string
	}{
		{`INSERT INTO tenant_acme.lease (type, id, seq, stage, attempt, node, leased_at, until)
			VALUES (1, (random() * 1e9)::int, 1, 'first', 1, 'n', now(), now())`,
			[]string{"alerts", "tokens"}},
		{`UPDATE tenant_acme.lease SET until = now()`, []string{"alerts", "tokens"}},
		{`WITH one AS (SELECT ctid FROM tenant_acme.lease LIMIT 1)
			DELETE FROM tenant_acme.lease WHERE ctid IN (SELECT ctid FROM one)`,
			[]string{"alerts", "tokens"}},
		{`SELECT * FROM tenant_acme.lease`, nil},
		{`INSERT INTO tenant_acme.ready_1 (type, order_time, id, seq, stage, attempt)
			VALUES (1, now(), (random() * 1e9)::int, 1, 'first', 1)`, []string{"alerts", "tokens"}},
		{`INSERT INTO tenant_acme.wait (type, id, seq, stage, attempt, order_time, reason, until)
			VALUES (1, (random() * 1e9)::int, 1, 'first', 1, now(), 'delay', now())`,
			[]string{"alerts", "tokens"}},
		{`INSERT INTO tenant_acme.tallies (type, at) VALUES ('pipe', now())`,
			[]string{"alerts", "tallies"}},
		{`INSERT INTO tenant_acme.idempotency_keys (type, key, id, hash, expires_at)
			VALUES ('pipe', gen_random_uuid(), 1, '', now())`, []string{"keys"}},
		{`INSERT INTO tenant_acme.operations (id, kind, type, filter, options, state, total, position,
			next_at, created_at) VALUES (gen_random_uuid(), 'cancel', 'pipe', '{}', '{}', 'running', 1, 1,
			now(), now())`, []string{"plans", "records"}},
	} {
		// Another connection may tell late of what it did before.
		eventually(t, c.sql, func() bool {
			exec(c.sql)
			return slices.Equal(c.want, changed())
		})
	}

	// A tenant's own count begins anew, and becomes what it was.
	exec(`SELECT pg_stat_reset_single_table_counters('tenant_acme.idempotency_keys'::regclass)`)
	exec(`INSERT INTO tenant_acme.idempotency_keys (type, key, id, hash, expires_at)
		VALUES ('pipe', 'b', 2, '', now())`)
	now := read(store.KeyTables)
	assert.NotEqual(t, last["keys"][tenant], now[tenant])
	assert.NotEqual(t, last["keys"]["other"], now["other"], "nobody knows what happened before")
}

// A database that counts nothing says so.
func TestActivityIsNotCounted(t *testing.T) {
	b := setup(t)
	_, ok, err := b.Activity(t.Context(), store.TokenTables)
	require.NoError(t, err)
	assert.True(t, ok)
	_, err = b.db.Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET track_counts = off', current_database()); END $$`)
	require.NoError(t, err)
	_, ok, err = open(t, b.url, "node-2").Activity(t.Context(), store.TokenTables)
	require.NoError(t, err)
	assert.False(t, ok)
}
