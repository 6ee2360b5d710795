package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Two nodes leasing from one backlog must share it, and nothing may be leased twice.
func TestNodesShareWithoutDoubles(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	far := open(t, b.url, "node-2")
	const n = 2000
	tasks := make([]asyncflow.NewTask, n)
	for i := range tasks {
		tasks[i] = newTask(fmt.Sprint(i))
	}
	b.submit(tasks...)
	var mu sync.Mutex
	seen := map[asyncflow.TaskID]int{}
	var wg sync.WaitGroup
	for _, node := range []*bundle{b, far, b, far} {
		wg.Go(func() {
			for {
				leases, _, err := node.Lease(t.Context(), pipe, 37)
				if store.IsHeld(err) { // by a vacuum
					continue
				}
				if !assert.NoError(t, err) || len(leases) == 0 {
					return
				}
				mu.Lock()
				for _, l := range leases {
					seen[l.ID]++
				}
				mu.Unlock()
			}
		})
	}
	waitAll(t, &wg)
	assert.Len(t, seen, n)
	for id, times := range seen {
		assert.Equal(t, 1, times, id)
	}
	b.checkTokens("pipe")
}

// Concurrent single submits must come out right, each with an id of its own.
func TestConcurrentSubmits(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	far := open(t, b.url, "node-2")
	var mu sync.Mutex
	ids := map[asyncflow.TaskID]bool{}
	var wg sync.WaitGroup
	for i := range 400 {
		node := []*bundle{b, far}[i%2]
		wg.Go(func() {
			r := node.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(fmt.Sprint(i))})
			if assert.NoError(t, r[0].Err) {
				mu.Lock()
				ids[r[0].ID] = true
				mu.Unlock()
			}
		})
	}
	waitAll(t, &wg)
	assert.Len(t, ids, 400)
	b.checkTokens("pipe")
}

// The plan of a lease must stay a short walk along the index, whatever the
// planner believes of the table: never analysed, or analysed when it was empty.
func TestLeasePlanIsPinned(t *testing.T) {
	pgtest.NotOnCitus(t, otherPlan)
	b := setup(t)
	pipe := b.put(twoStages())
	_, err := b.db.Exec(t.Context(), `ANALYZE tenant_acme.ready_1, tenant_acme.lease`)
	require.NoError(t, err)
	_, err = b.db.Exec(
		t.Context(),
		fill(pipe, 1, `INSERT INTO {ready}
		SELECT {number}, now() - interval '1 hour' + n * interval '1 ms', n, 1, 'first', 1
		FROM generate_series(1, 50000) n`),
	)
	require.NoError(t, err)
	db := b.hotPool()
	for what, sql := range map[string]string{
		"take": strings.NewReplacer("$1", "now()", "$2", "200", "$3", "'-infinity'", "$4",
			"{number}").
			Replace(store.TakeReadySQL),
		"head": strings.NewReplacer("$1", "'-infinity'", "$2", "{number}").Replace(store.HeadSQL),
	} {
		t.Run(what, func(t *testing.T) {
			plan := explain(t, db, fill(pipe, 1, sql))
			assert.Contains(t, plan, "Index")
			assert.NotContains(t, plan, "Seq Scan")
			assert.NotContains(t, plan, "Sort")
		})
	}
}

// Nor may the end of a lease walk over all leases, once a vacuum saw the table empty.
func TestSettlePlanIsPinned(t *testing.T) {
	pgtest.NotOnCitus(t, otherPlan)
	b := setup(t)
	pipe := b.put(twoStages())
	_, err := b.db.Exec(t.Context(), `VACUUM tenant_acme.lease`)
	require.NoError(t, err)
	_, err = b.db.Exec(
		t.Context(),
		fill(pipe, 1, `INSERT INTO {lease}
		SELECT {number}, n, 1, 'first', 1, 'n', now(), now() FROM generate_series(1, 400) n`),
	)
	require.NoError(t, err)
	db := b.hotPool()
	const ids, ones = "(SELECT array_agg(n) FROM generate_series(1, 100) n)",
		"(SELECT array_agg(1) FROM generate_series(1, 100))"
	for what, sql := range map[string]string{
		"take": strings.NewReplacer("$1", ids, "$2", ones, "$3",
			"array_fill({number}, ARRAY[100])").
			Replace(store.TakeLeaseSQL),
		"end": strings.NewReplacer("$1", ids, "$2", ones, "$3", "100", "$4",
			"array_fill({number}, ARRAY[100])").Replace(store.EndLeasesSQL),
		"extend": strings.NewReplacer("$1", ids, "$2", ones, "$3",
			"(SELECT array_agg(now()) FROM generate_series(1, 100))", "$4",
			"array_fill(NULL::timestamptz, ARRAY[100])", "$5", "array_fill({number}, ARRAY[100])",
			"$6", "(SELECT array_agg(now()) FROM generate_series(1, 100))").
			Replace(store.ExtendLeaseSQL),
	} {
		t.Run(what, func(t *testing.T) {
			plan := explain(t, db, fill(pipe, 1, sql))
			assert.Contains(t, plan,
				"Index Cond: ((type = ANY (ARRAY[u.type])) AND (id >= u.id) AND (id <= u.id))", "%s: %s", what,
				plan)
			assert.NotContains(t, plan, "Join Filter", "%s: %s", what, plan)
		})
	}
}

// A node vacuums what it moved many rows of, whichever types they are of, and nothing else.
func TestVacuum(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	spec := twoStages()
	spec.Name = "other"
	other := b.put(spec)
	tasks := make([]asyncflow.NewTask, 5000)
	for i := range tasks {
		tasks[i] = newTask(`1`)
	}
	tasks[0].Type = "other"
	b.submit(tasks...)
	require.Len(t, b.lease(pipe, 5000), 4999)
	n, err := b.Vacuum(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	require.Len(t, b.lease(other, 1), 1)
	for _, want := range []int{1, 0} {
		n, err = b.Vacuum(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
}

// hotPool returns connections with the settings of those that lease and settle.
func (b *bundle) hotPool() *pgxpool.Pool {
	b.t.Helper()
	cfg, err := pgxpool.ParseConfig(b.url)
	require.NoError(b.t, err)
	for name, value := range store.HotSettings {
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	db, err := pgxpool.NewWithConfig(b.t.Context(), cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(db.Close)
	return db
}

func explain(t *testing.T, db *pgxpool.Pool, sql string) string {
	rows, err := db.Query(t.Context(), "EXPLAIN "+sql)
	require.NoError(t, err)
	var lines []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		lines = append(lines, line)
	}
	require.NoError(t, rows.Err())
	return strings.Join(lines, "\n")
}

// What is long is compressed by what costs the server the least, which not every build of Postgres
// offers, unless somebody chose for it.
func TestCompression(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	long := newTask(`"` + strings.Repeat("long ", 2000) + `"`)
	var cheapest string
	require.NoError(
		t,
		b.db.QueryRow(t.Context(), `SELECT CASE WHEN 'lz4' = ANY (enumvals) THEN 'lz4' ELSE 'pglz' END
		FROM pg_settings WHERE name = 'default_toast_compression'`).Scan(&cheapest),
	)
	assert.Equal(t, cheapest, b.compression(b.submit(long)[0].ID))
	name := b.db.Config().ConnConfig.Database
	_, err := b.db.Exec(t.Context(),
		`ALTER DATABASE `+pgx.Identifier{name}.Sanitize()+` SET default_toast_compression = pglz`)
	require.NoError(t, err)
	assert.Equal(t, "pglz", b.compression(open(t, b.url, "node-2").submit(long)[0].ID))
}

func (b *bundle) compression(id asyncflow.TaskID) (how string) {
	b.t.Helper()
	require.NoError(
		b.t,
		b.db.QueryRow(b.t.Context(), `SELECT pg_column_compression(context)
			FROM tenant_acme.task_1 WHERE id = $1`, id.Number).
			Scan(&how),
	)
	return how
}
