package dispatcher_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

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
	unlock := pgtest.Hold(t, w.url, `LOCK TABLE tenant_acme.task_1 IN EXCLUSIVE MODE`)
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
	unlock()
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
