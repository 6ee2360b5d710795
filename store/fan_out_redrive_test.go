package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Of a call and an operation that redrive a child at once, one takes its end back from the counts
// of its parent.
func TestAChildIsRedrivenTwiceAtOnce(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	leases := b.leaseAll(b.known(), 2)
	b.settle(b.known(), leases[0], badEnd)
	b.followUp()
	_, due := b.start(store.RedriveTasks,
		store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusFailed}})
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.fan_outs FOR UPDATE`)
	require.NoError(t, err)
	ends := make(chan error, 2)
	waiting := func(n int) func() bool {
		return func() bool {
			return b.count(`SELECT count(*) FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND datname = current_database()`) == n
		}
	}
	go func() {
		_, err := b.Redrive(t.Context(), tenant, leases[0].ID, store.Redrive{})
		ends <- err
	}()
	eventually(t, "the call waits for the fan-out", waiting(1))
	go func() {
		_, err := b.StepOperation(t.Context(), due)
		ends <- err
	}()
	eventually(t, "the operation waits, too", waiting(2))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-ends)
	require.NoError(t, <-ends)
	b.settle(b.known(), leases[1], goodEnd)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd)
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusPending)
	assert.Equal(t, "second", task.Stage)
	assert.Equal(t, &asyncflow.Children{Total: 2, Succeeded: 2}, task.Children)
	b.checkTokens("pipe")
}
