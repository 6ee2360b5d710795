package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// What an erasure by an operation costs, beside a plain UPDATE of the contexts of as many tasks.
// The bytes are those of the server: what other tests write meanwhile is among them.
func TestErasureCosts(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	n := longform.Size(400, 20_000)
	context := `"` + strings.Repeat("x", 1000) + `"`
	for i := 0; i < n; i += 200 {
		for range 200 {
			task := newTask(context)
			task.Options.User = fmt.Sprint("user ", i)
			b.submit(task)
		}
		require.Len(t, b.failAll(), 200)
	}
	bytes := func(do func()) int {
		b.exec(`CHECKPOINT`)
		before := b.count(`SELECT (pg_current_wal_lsn() - '0/0')::bigint`)
		do()
		return b.count(`SELECT (pg_current_wal_lsn() - '0/0')::bigint`) - before
	}
	update := bytes(func() {
		b.exec(b.at(1, `UPDATE {task} SET context = context WHERE type = {number}`))
		b.exec(b.at(1, `UPDATE {journal} SET error = error WHERE type = {number}`))
	})
	var took time.Duration
	erased := bytes(func() {
		_, due := b.start(store.EraseTasks, store.NewOperation{By: "privacy",
			Filter: store.Filter{Type: "pipe"}})
		begin := time.Now()
		require.EqualValues(t, n, b.finish(due).Done)
		took = time.Since(begin)
	})
	t.Logf("%d tasks: %.0f erased a second; %d bytes of WAL an erased task, %d an updated one", n,
		float64(n)/took.Seconds(), erased/n, update/n)
}

// However many tasks of a held roll are due, the job erase reads none of them to find tasks of
// other rolls: also if its statements were planned when there were none.
func TestAgedBesideManyHeld(t *testing.T) {
	pgtest.NotOnCitus(t, otherPlan)
	b := setup(t)
	pipe := b.put(keepHour())
	conn, err := b.db.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	b.exec(`VACUUM tenant_acme.content_waits`)
	tx := byIDTx(t, conn, true)
	for name, sql := range map[string]string{"first (int, int[])": store.FirstAgedSQL,
		"due (int, timestamptz, int, int)": store.DueWaitsSQL} {
		_, err := tx.Exec(t.Context(), fill(pipe, 1, `PREPARE `+name+` AS `+sql))
		require.NoError(t, err)
	}
	for _, sql := range []string{`first ({number}, '{1}')`, `due ({number}, now(), 100, 2)`} {
		_, err = tx.Exec(t.Context(), fill(pipe, 1, `EXPLAIN EXECUTE `+sql))
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(t.Context()))
	b.exec(b.at(1, `INSERT INTO {content_waits} (type, id, since)
		SELECT {number}, (1::bigint << 40) + n, '2026-01-01'::timestamptz + n * interval '1 s'
		FROM generate_series(1, 100000) n`))
	b.exec(b.at(1, `INSERT INTO {content_waits} VALUES ({number}, (2::bigint << 40) + 1,
		'2026-06-01')`))
	for _, sql := range []string{`first ({number}, '{1}')`, `first ({number}, '{}')`,
		`due ({number}, now(), 100, 2)`, `due ({number}, now(), 100, 1)`} {
		t.Run(sql, func(t *testing.T) {
			tx := byIDTx(t, conn, true)
			pages, plan := pagesOf(t, tx,
				fill(pipe, 1, `EXPLAIN (ANALYZE, BUFFERS) EXECUTE `+sql), 1)
			assert.Less(t, pages, 150, plan)
			assert.NotRegexp(t, `Rows Removed by Filter: \d{4}`, plan)
		})
	}
}
