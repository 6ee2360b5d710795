package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
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
			return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
				WHERE wait_event_type = 'Lock' AND datname = current_database()`) == n
		}
	}
	go func() {
		_, err := b.Redrive(t.Context(), tenant, leases[0].ID, store.Redrive{})
		ends <- err
	}()
	eventually(t, "the call waits for the fan-out", waiting(1))
	go func() {
		_, err := b.StepOperation(t.Context(), due, b.Submit)
		ends <- err
	}()
	eventually(t, "the operation waits, too", waiting(2))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, receive(t, ends))
	require.NoError(t, receive(t, ends))
	b.settle(b.known(), leases[1], goodEnd)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd)
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusPending)
	assert.Equal(t, "second", task.Stage)
	assert.Equal(t, &asyncflow.Children{Total: 2, Succeeded: 2}, task.Children)
	b.checkTokens("pipe")
}

// Redrives lock fan-outs in one order, whether their tasks are children or parents, and before
// rolls, as FollowUp does: otherwise two of them would wait for each other.
func TestRedrivesLockFanOutsInOneOrder(t *testing.T) {
	b := setupFanOut(t)
	failed := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	require.Equal(t, "second", b.comesTo(failed, asyncflow.StatusPending).Stage)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	waits := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	child := b.leaseAll(b.known(), 2)[0]
	b.settle(b.known(), child, badEnd)
	b.followUp()
	_, due := b.start(store.RedriveTasks,
		store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusFailed}})

	first := b.lockFanOut(failed)
	end := make(chan error, 1)
	go func() {
		step, err := b.StepOperation(t.Context(), due, b.Submit)
		if err == nil && step.Done != 2 {
			err = fmt.Errorf("%d were redriven", step.Done)
		}
		end <- err
	}()
	eventually(t, "the operation waits for the first fan-out", func() bool {
		return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	fanOuts := b.count(`SELECT count(*) FROM (SELECT FROM tenant_acme.fan_outs
		WHERE id = ` + strconv.FormatInt(waits.Number, 10) + ` FOR UPDATE SKIP LOCKED) o`)
	rolls := b.count(`SELECT count(*) FROM (SELECT FROM tenant_acme.rolls
		WHERE position = 1 FOR NO KEY UPDATE SKIP LOCKED) r`)
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, receive(t, end))
	assert.Equal(t, 1, fanOuts, "the second one is free")
	assert.Equal(t, 1, rolls, "so is the roll")
	b.checkTokens("pipe")
}

// lockFanOut locks the fan-outs of a task in a transaction.
func (b *bundle) lockFanOut(of asyncflow.TaskID) pgx.Tx {
	b.t.Helper()
	tx, err := b.db.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), `SELECT FROM tenant_acme.fan_outs WHERE id = $1 FOR UPDATE`,
		of.Number)
	require.NoError(b.t, err)
	return tx
}

// Failed children are redriven by calls and operations at once, over two nodes: each once, and
// their parent goes on when all are over.
func TestChildrenAreRedrivenAtOnce(t *testing.T) {
	longform.Costly(t)
	b := setupFanOut(t)
	far := open(t, b.url, "far")
	const children = 21
	id := b.submit(newTask(`{"items":[1` + strings.Repeat(",1", children-1) + `]}`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind: asyncflow.OutcomeFannedOut, FannedOut: &asyncflow.FannedOut{Count: children,
			FanOut: asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled}}})
	b.followUp()
	leases := b.leaseAll(b.known(), children)
	failed := leases[1:]
	for range 3 {
		b.settleAll(b.known(), failed, rejected)
		b.followUp()
		b.redriveAll(far, failed)
		require.Zero(t, b.sweep())
		failed = b.leaseAll(b.known(), len(failed))
	}
	b.settleAll(b.known(), append(failed, leases[0]), done)
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusPending)
	assert.Equal(t, &asyncflow.Children{Total: children, Succeeded: children}, task.Children)
	b.checkTokens("pipe")
}

// redriveAll redrives failed tasks of the type pipe on two nodes at once, each task by a call to
// each and by two operations.
func (b *bundle) redriveAll(far *bundle, failed []asyncflow.Lease) {
	b.t.Helper()
	var running sync.WaitGroup
	for _, node := range []*bundle{b, far} {
		_, due := b.start(store.RedriveTasks,
			store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusFailed}})
		running.Go(func() { assert.NoError(b.t, node.takeSteps(due)) })
		running.Go(func() {
			for _, l := range failed {
				_, err := node.Redrive(b.t.Context(), tenant, l.ID, store.Redrive{})
				assert.True(b.t, err == nil || asyncflow.CodeOf(err) == asyncflow.CodeConflict,
					"%v", err)
			}
		})
	}
	waitAll(b.t, &running)
}
