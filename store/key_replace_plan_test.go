package store_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// However many tasks there are of a type, a replace reads the rows of its own tasks only, whatever
// the planner believes of the tables: never analysed, or vacuumed when they were empty.
func TestReplacePlansArePinned(t *testing.T) {
	pgtest.NotOnCitus(t, otherPlan)
	b := setup(t)
	pipe := b.put(twoStages())
	db := b.hotPool()
	for _, state := range []string{"never analysed", "empty"} {
		if state == "empty" {
			_, err := b.db.Exec(t.Context(), fill(pipe, 1,
				`VACUUM tenant_acme.idempotency_keys, {wait}, {ready}, {journal}`))
			require.NoError(t, err)
		}
		for name, c := range map[string]struct{ sql, args, cond string }{
			"wait, locked": {store.LockWaitSQL, "'{1,2}', {number}, 9, false",
				"(type = $2) AND (id >= u.id) AND (id <= u.id)"},
			"wait": {store.TakeLockedWaitSQL, "'{1,2}', {number}",
				"(type = $2) AND (id >= u.id) AND (id <= u.id)"},
			"ready, locked": {store.LockReadySQL, "'{now,now}', '{1,2}', {number}, 9",
				"(order_time = u.order_time) AND (id >= u.id) AND (id <= u.id)"},
			"ready": {store.TakeLockedReadySQL, "'{now,now}', '{1,2}', {number}",
				"(order_time = u.order_time) AND (id >= u.id) AND (id <= u.id)"},
			"keys": {store.TakeKeysSQL, "'pipe', '{a,b}', '{1,2}', '{a,b}', '{now,now}'",
				"(type = $1) AND (key >= u.key) AND (key <= u.key)"},
			"journal": {store.InsertChangedSQL, `'{1}', '{2}', '{first}', '{1}', '{now}', '{null}',
				now(), {number}, '{1}', '{""}'`, "(id = u.id) AND (seq = (u.seq - 1))"},
		} {
			t.Run(state+": "+name, func(t *testing.T) {
				conn, err := db.Acquire(t.Context())
				require.NoError(t, err)
				defer conn.Release()
				_, err = conn.Exec(t.Context(), fill(pipe, 1, "PREPARE p AS "+c.sql))
				require.NoError(t, err)
				rows, _ := conn.Query(t.Context(), fill(pipe, 1, "EXPLAIN EXECUTE p("+c.args+")"))
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), "DEALLOCATE p")
				require.NoError(t, err)
				plan := strings.Join(lines, "\n")
				assert.Contains(t, plan, c.cond, plan)
				assert.NotContains(t, plan, "Join Filter", plan)
			})
		}
	}
}
