package store_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// A row that another transaction is just updating is taken all the same, as it is after the commit.
func TestUpdatedRowsAreTaken(t *testing.T) {
	for name, c := range map[string]struct{ sql, insert, update string }{
		"lease": {store.ByIDSQL["TakeAnyLeaseSQL"].SQL,
			`{lease} (type, id, seq, stage, attempt, node, leased_at, until)
			VALUES ({number}, 1::bigint << 40, 1, 'first', 1, 'n', now(), now())`,
			`{lease} SET until = now() + interval '1 h'`},
		"wait": {store.ByIDSQL["TakeAnyWaitSQL"].SQL,
			`{wait} (type, id, seq, stage, attempt, order_time, until, reason)
			VALUES ({number}, 1::bigint << 40, 1, 'first', 1, now(), now(), 'dependencies')`,
			`{wait} SET until = now() + interval '1 h'`},
		"dependents": {store.ByIDSQL["TakeDependentsSQL"].SQL,
			`{wait} (type, id, seq, stage, attempt, order_time, until, reason)
			VALUES ({number}, 1::bigint << 40, 1, 'first', 1, now(), now(), 'dependencies')`,
			`{wait} SET until = now() + interval '1 h'`},
		"lifetimes": {store.ByIDSQL["DeleteLifetimes"].SQL,
			`{lifetimes} (type, id, expires_at) VALUES ({number}, 1::bigint << 40, now())`,
			`{lifetimes} SET expires_at = now() + interval '1 h'`},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.put(twoStages())
			number := b.known().Number()
			b.exec(b.at(1, `INSERT INTO `+c.insert))
			tx, err := b.db.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), b.at(1, `UPDATE `+c.update))
			require.NoError(t, err)
			args := map[string][]any{
				"dependents": {number, []int64{1 << 40}},
				"lifetimes":  {[]int32{number}, []int64{1 << 40}},
			}[name]
			if args == nil {
				args = []any{[]int64{1 << 40}, number}
			}
			batch := &pgx.Batch{}
			store.QueueTake(batch, func(pgx.Rows) error { return nil },
				b.at(1, c.sql), args...)
			done := make(chan error, 1)
			go func() { done <- b.db.SendBatch(t.Context(), batch).Close() }()
			b.blocked(1)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, receive(t, done))
			table, _, _ := strings.Cut(c.update, " ")
			require.Zero(t, b.count(b.at(1, `SELECT count(*) FROM `+table)))
		})
	}
}
