package dispatcher_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// A task goes on at once after its last child, if there is capacity: the transaction that ends its
// wait writes the lease of its next stage.
func TestHandoffAfterTheLastChild(t *testing.T) {
	b := setup(t)
	handed := make(chan int, 1)
	f := &family{t: t, node: b.start("a", dispatcher.Config{}, func(_ context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		if d.Lease.Stage == "second" {
			handed <- b.handedOn()
		}
		return done
	})}
	f.fansOut(asyncflow.FanOut{Shards: 2})
	require.Eventually(t, func() bool { // else there was just a look
		task := f.one(`1`)
		assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
		return <-handed == 1
	}, patience, 20*time.Millisecond)
	f.isEmpty(t)
}

// Children begin at once if there is capacity: the transaction that makes them writes their leases.
func TestChildrenBeginAtOnce(t *testing.T) {
	b := setup(t)
	begun := make(chan int, 3)
	f := b.family(dispatcher.Config{Concurrency: 2}, asyncflow.FanOut{Shards: 3},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			begun <- b.count(`tenant_acme.lease l JOIN tenant_acme.task_1 k ON k.id = l.id
				AND k.xmin::text = l.xmin::text WHERE l.id = ` + strconv.FormatInt(d.Lease.ID.Number, 10))
			return done
		})
	require.Eventually(t, func() bool { // else there was just a look
		assert.Equal(t, asyncflow.StatusSucceeded, f.one(`1`).Status)
		return <-begun+<-begun+<-begun == 2
	}, patience, 20*time.Millisecond)
	f.isEmpty(t)
}

// The capacity of children that could not be made is given back, and they are made later.
func TestChildrenThatAreNotMadeTakeNoCapacity(t *testing.T) {
	b := setup(t)
	f := b.family(dispatcher.Config{}, asyncflow.FanOut{Shards: 3}, echo)
	require.Equal(t, asyncflow.StatusSucceeded, f.one(`1`).Status)
	step := f.byHand()
	id := f.submitOne(`1`)
	f.waits(id)
	f.isEmpty(t)
	unlock := b.lock("tenant_acme.task_1")
	step()
	f.isEmpty(t)
	unlock()
	require.Eventually(t, func() bool {
		_, _, err := f.SweepFollowUps(t.Context(), tenant, f.Starter())
		require.NoError(t, err)
		task, err := f.Task(t.Context(), tenant, id)
		return err == nil && task.Status.Final()
	}, patience, 20*time.Millisecond)
	assert.Equal(t, map[int]int{0: 2, 1: 2, 2: 2}, f.first)
	f.isEmpty(t)
}
