package dispatcher_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// lock keeps writers from a table until the transaction ends.
func (w *writer) lock(table string) pgx.Tx {
	w.t.Helper()
	tx, err := w.db.Begin(w.t.Context())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(w.t.Context(), `LOCK TABLE tenant_acme.`+table+` IN EXCLUSIVE MODE`)
	require.NoError(w.t, err)
	return tx
}

// While a table of a tenant is locked, its new tasks wait, and so do later ones. Its writes that
// don't need the table go on, and so do other tenants. When the lock is gone, everything is written
// once.
func TestLockedTableHoldsUpNoOther(t *testing.T) {
	w := setupWriter(t)
	pipe := w.put(writerType())
	_, err := w.CreateTenant(t.Context(), "other", asyncflow.Quotas{})
	require.NoError(t, err)
	_, _, err = w.PutTaskType(t.Context(), "other", writerType())
	require.NoError(t, err)
	w.submit(newTask(`1`))
	l := w.lease(pipe, 1)[0]
	tx := w.lock("task_1")
	results := make(chan store.Submitted, 2)
	submit := func(context string) {
		go func() {
			results <- w.Submit(w.t.Context(), tenant, []asyncflow.NewTask{newTask(context)})[0]
		}()
	}
	submit(`2`)
	eventually(t, "they are written apart", func() bool { return w.WritesApart() == 1 })
	submit(`3`)
	for range 20 {
		require.NoError(t, w.Submit(t.Context(), "other", []asyncflow.NewTask{newTask(`1`)})[0].Err)
	}
	assert.Equal(t, store.Settled{},
		w.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}))
	assert.Empty(t, results)
	require.NoError(t, tx.Rollback(t.Context()))
	for range 2 {
		require.NoError(t, (<-results).Err)
	}
	eventually(t, "nothing is written apart", func() bool { return w.WritesApart() == 0 })
	var n int
	require.NoError(t, w.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.task_1`).Scan(&n))
	assert.Equal(t, 3, n)
	w.checkTokens()
}
