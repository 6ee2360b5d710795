package governance_test

import (
	"fmt"
	"maps"
	"slices"
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

// contents returns all rows of every table of the tenant and of asyncflow.
func contents(t *testing.T, url string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(),
		`SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('tenant_acme', 'asyncflow') AND c.relkind = 'r'`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	all := map[string]string{}
	for _, name := range names {
		var digest string
		require.NoError(t,
			conn.QueryRow(t.Context(),
				`SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '')
			FROM `+name+` r`).Scan(&digest))
		all[name] = digest
	}
	return all
}

// The dry run of each job returns how many rows it would move, by type, and changes nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.gov.ByHand()
	for _, j := range b.gov.Jobs() {
		b.jobs[j.Name] = j
		due, err := j.DryRun(t.Context())
		require.NoError(t, err, j.Name)
		assert.Empty(t, due, "%s: there is nothing yet", j.Name)
	}
	pipe := b.pipe(t, "pipe")
	b.pipe(t, "quiet")
	leases := b.submitAndLease(t, pipe, 40)
	exec(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE id % 4 = 0`)
	for _, r := range b.Submit(t.Context(), tenant,
		slices.Repeat([]asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`),
			Delay: asyncflow.NewDuration(time.Hour)}}, 7)) {
		require.NoError(t, r.Err)
	}
	exec(t, url,
		`UPDATE tenant_acme.wait SET until = now(), order_time = now() WHERE id IN (SELECT id
		FROM tenant_acme.wait LIMIT 3)`)
	for i := range 5 {
		r := b.Submit(t.Context(), tenant,
			[]asyncflow.NewTask{{Type: "quiet", Context: []byte(`1`),
				Options: asyncflow.Options{Key: fmt.Sprint(i)}}})
		require.NoError(t, r[0].Err)
	}
	exec(t, url,
		`UPDATE tenant_acme.idempotency_keys SET expires_at = now() - interval '1 s' WHERE key < '2'`)
	exec(t, url,
		`INSERT INTO tenant_acme.tallies (type, at, submitted)
		SELECT 'quiet', now() - interval '10 min', 1 FROM generate_series(1, 6)`)
	exec(t, url,
		`INSERT INTO asyncflow.nodes VALUES
		('old', 'api', 'v1', now() - interval '3 d', now() - interval '2 d')`)
	start := func(filter store.Filter) store.Operation {
		o, err := b.StartOperation(t.Context(), tenant,
			store.NewOperation{Kind: store.CancelTasks, Filter: filter})
		require.NoError(t, err)
		return o
	}
	start(store.Filter{Type: "quiet"})
	start(store.Filter{Type: "pipe", Status: asyncflow.StatusPending})
	exec(t, url,
		`UPDATE tenant_acme.operations SET finished_at = now() - interval '31 d' WHERE state = 'done'`)
	of := func(name string,
		rows int) store.Due {
		return store.Due{Tenant: tenant, Type: name, Rows: rows}
	}
	want := map[string][]store.Due{
		"rescue":      {of("pipe", 10)},
		"promote":     {of("pipe", 3)},
		"operations":  {of("quiet", 5)},
		"expire-keys": {of("quiet", 2)},
		"fold":        {of("quiet", 6)},
		"forget":      {{Rows: 1}, of("pipe", 1)},
	}
	require.Len(t, leases, 40)
	before := contents(t, url)
	for name, due := range want {
		t.Run(name, func(t *testing.T) {
			got, err := b.jobs[name].DryRun(t.Context())
			require.NoError(t, err)
			assert.Equal(t, due, got)
		})
	}
	_, err := b.jobs["vacuum"].DryRun(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before, contents(t, url), "looking changes nothing")
	for _, name := range slices.Sorted(maps.Keys(want)) {
		sum := 0
		for _, d := range want[name] {
			sum += d.Rows
		}
		n, err := b.jobs[name].Run(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, sum, n, name)
		due, err := b.jobs[name].DryRun(t.Context())
		require.NoError(t, err, name)
		assert.Empty(t, due, "%s: nothing is left", name)
	}
	n, err := b.jobs["vacuum"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n, "by hand it takes every table set")
}
