package store_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// byKeySQL returns the statements of leases of a type with ordered flow keys that take turns, and
// of the ends of its tasks, that find tasks by key: in two ready tables, and under their stage.
func (b *bundle) byKeySQL(noted *pgtest.Statements) (found []string) {
	b.t.Helper()
	spec := fairStages(nil)
	spec.Flow.Ordered = true
	spec.Flow.OnFailure = asyncflow.FlowBlock
	b.put(spec)
	b.fillKeys(1, 30, 20)
	all := slices.Concat(ran(noted, func() {
		assert.Empty(b.t, b.leaseLimited(20, &doorman{capacities: map[string]int{"first": 0}}))
		b.roll()
		b.fillKeys(2, 30, 20)
		for range 2 {
			for _, l := range b.fairLease(20) {
				b.endBy(asyncflow.OutcomeRejected)(l)
			}
		}
	}), []string{b.at(1, store.MarkedSQL)})
	for _, sql := range all {
		if regexp.MustCompile(`(?s)^\s*(WITH|SELECT|DELETE).*(ready_|\bwait\b).*\bkey\b`).
			MatchString(sql) && !slices.Contains(found, sql) {
			found = append(found, sql)
		}
	}
	return found
}

// testsKeys matches a condition on a key that a plan tests row by row.
var testsKeys = regexp.MustCompile(`Filter: .*(\(key|\(ROW\(key, order_time\)) [<>]?= `)

// genericPlan returns the plan of a statement for all parameters.
func genericPlan(t *testing.T, conn *pgxpool.Conn, sql string) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), "PREPARE p AS "+sql)
	require.NoError(t, err, sql)
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT cardinality(parameter_types)
		FROM pg_prepared_statements WHERE name = 'p'`).Scan(&n))
	rows, _ := conn.Query(t.Context(), "EXPLAIN EXECUTE p ("+
		strings.Join(slices.Repeat([]string{"NULL"}, n), ", ")+")")
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, sql)
	_, err = conn.Exec(t.Context(), "DEALLOCATE p")
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// Leases find the tasks of a flow key by an index with the keys, whatever the planner believes of
// the tables: also where this index is a level higher than one without the keys. So it is while
// some thousand tasks are in line, and for good afterwards.
func TestPlansOfFlowKeysArePinned(t *testing.T) {
	pgtest.NotOnCitus(t, otherPlan)
	noted, url := pgtest.Noted(t, setup(t).url)
	b := open(t, url, "node-2")
	all := b.byKeySQL(noted)
	text := strings.Join(all, "\n")
	for _, part := range []string{"RECURSIVE ahead", "AS source", "FOR UPDATE SKIP LOCKED) k",
		"u.mark", `AS t FROM "tenant_acme"."wait"`, "SELECT abs(b.id)"} {
		require.Contains(t, text, part)
	}
	b.exec(b.at(1, `ALTER TABLE {ready} DROP CONSTRAINT sealed`))
	for n, into := range []string{
		b.at(1, `{ready} (order_time, type, id, seq, stage, attempt, key) SELECT now()`),
		b.at(2, `{ready} (order_time, type, id, seq, stage, attempt, key) SELECT now()`),
		b.at(0, `{wait} (order_time, until, reason, type, id, seq, stage, attempt, key)
			SELECT now(), 'infinity', 'limit'`),
		b.at(0, `{wait} (order_time, until, reason, type, id, seq, stage, attempt, key)
			SELECT now(), 'infinity', 'flow_key'`),
	} {
		b.exec(b.at(0, `INSERT INTO `+into+`, {number}, $1 * 1000000 + n, 1, 'first', 1,
			repeat('k', 200) || n FROM generate_series(1, 5000) n`), n)
	}
	db := b.hotPool()
	for _, state := range []string{"in line", "almost empty"} {
		if state == "almost empty" {
			for _, table := range []string{b.at(1, `{ready}`), b.at(2, `{ready}`),
				b.at(0, `{wait}`)} {
				b.exec(`DELETE FROM ` + table + ` WHERE id % 100 <> 0`)
				b.exec(`VACUUM ` + table)
			}
		}
		t.Run(state, func(t *testing.T) {
			conn, err := db.Acquire(t.Context())
			require.NoError(t, err)
			defer conn.Release()
			for _, sql := range all {
				plan := genericPlan(t, conn, sql)
				assert.NotRegexp(t, testsKeys, plan, sql)
				assert.NotContains(t, plan, "Incremental Sort", sql)
				if strings.Contains(sql, "'children'") { // else it reads all that the key has there
					assert.Regexp(t, `Index Cond: .*ROW\(key, reason\) >= `, plan, sql)
				}
			}
		})
	}
}
