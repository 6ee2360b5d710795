package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// dying is a node that dies when it gets something to deliver. It has room for a number of
// tasks of each batch.
type dying struct {
	room     int
	mu       sync.Mutex
	reserved int
	got      []asyncflow.Lease
	waits    func() // while it is asked for room
}

func (d *dying) Reserve(_ *store.Type, n int, _ time.Time) int {
	if d.waits != nil {
		d.waits()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n = min(n, d.room)
	d.reserved += n
	return n
}

func (*dying) MayLinger(int) bool { return true }

func (*dying) Await(*store.Type, func() int, time.Time) {}

func (d *dying) Receive(_ *store.Type, room int, leases []asyncflow.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= room
	d.got = append(d.got, leases...)
}

// Tasks that were handed to a node which died before it began are leases that run out:
// each is tried again, the lost attempt is counted, and the others wait in line meanwhile.
func TestCrashAfterAHandoff(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	node := &dying{room: 3}
	b.HandTo(node)
	tasks := make([]asyncflow.NewTask, 5)
	for i := range tasks {
		tasks[i] = newTask(`1`)
	}
	all := b.submit(tasks...)
	require.Len(t, node.got, 3)
	assert.Zero(t, node.reserved)
	b.checkTokens("pipe")
	waiting := b.leaseAll(pipe, 2)
	for _, l := range waiting {
		assert.Equal(t, 1, l.Seq)
	}
	b.HandTo(nil)
	require.Eventually(t, func() bool { // when the leases have run out
		n, err := b.Rescue(t.Context(), pipe)
		require.NoError(t, err)
		return n > 0
	}, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool { // some of the others' may have run out too
		_, err := b.Rescue(t.Context(), pipe)
		require.NoError(t, err)
		attempts, err := b.Attempts(t.Context(), tenant, all[0].ID)
		require.NoError(t, err)
		return len(attempts) == 1 && attempts[0].Outcome == asyncflow.OutcomeLost
	}, patience, 50*time.Millisecond)
	b.checkTokens("pipe")
}

// A batch that is submitted again, as its commit is unknown, hands over what it inserts and
// nothing else.
func TestHandoffAfterALostCommit(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	node := &dying{room: 10}
	b.HandTo(node)
	require.NoError(t, b.SubmitAgain(t.Context(), tenant, [2]asyncflow.NewTask{newTask(`1`), newTask(`2`)}))
	require.Len(t, node.got, 2)
	assert.NotEqual(t, node.got[0].ID, node.got[1].ID)
	assert.Zero(t, node.reserved)
	b.checkTokens("pipe")
}

// What was due when it was asked is due, whatever becomes of the clock.
func TestHandoffWhileTheClockGoesBack(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	node := &dying{room: 2, waits: func() { b.Clock.Shift(-time.Minute) }}
	b.HandTo(node)
	b.submit(newTask(`1`), newTask(`2`), newTask(`3`))
	require.Len(t, node.got, 2)
	b.checkTokens("pipe")
}
