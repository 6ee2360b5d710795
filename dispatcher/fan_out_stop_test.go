package dispatcher_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// stopSlots is how many of the node's 8 slots one type may use: three quarters.
const stopSlots = 6

// stopChildren is more than one transaction cancels.
var stopChildren = longform.Size(1200, 3000)

// startStopped starts a node that sends stopSlots children at once. They end when open is called.
// One fails for each value that is sent to fail.
func startStopped(t *testing.T) (f *family, begun, fail chan struct{}, open func()) {
	begun, fail = make(chan struct{}, stopChildren), make(chan struct{})
	end, open := gate()
	f = setup(t).family(dispatcher.Config{Concurrency: 8},
		asyncflow.FanOut{Shards: stopChildren}, func(context.Context,
			asyncflow.Delivery) asyncflow.Outcome {
			begun <- struct{}{}
			select {
			case <-fail:
				return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 422, Error: "no"}
			case <-end:
				return done
			}
		})
	t.Cleanup(open)
	return f, begun, fail, open
}

// allEnd waits for the end of all children. It does what the background job does with what was put
// off because of a lock.
func (f *family) allEnd(id asyncflow.TaskID) store.Task {
	return f.children(id, func(c asyncflow.Children) bool {
		_, _, err := f.SweepFollowUps(f.t.Context(), tenant)
		require.NoError(f.t, err)
		return c.Cancelled+c.Succeeded+c.Failed == stopChildren
	})
}

// busy reports whether all slots are in use, and more children are ready.
func busy(c asyncflow.Children) bool { return c.Running >= stopSlots && c.Pending > stopSlots }

// No child begins after the cancel of its parent was answered, though most are cancelled later.
func TestNoChildBeginsAfterACancel(t *testing.T) {
	f, begun, _, open := startStopped(t)
	id := f.submitOne(`{}`)
	for range stopSlots {
		<-begun
	}
	f.children(id, busy)
	_, err := f.Cancel(t.Context(), tenant, id, "stop it")
	require.NoError(t, err)
	f.children(id, func(c asyncflow.Children) bool { return c.Cancelled > 0 })
	n := f.begun() // one more than the slots may begin before the cancel
	open()
	f.allEnd(id)
	assert.Equal(t, n, f.begun())
	assert.Empty(t, f.joined)
}

// No child begins after the failure of a sibling stopped them.
func TestNoChildBeginsAfterAFailure(t *testing.T) {
	f, begun, fail, open := startStopped(t)
	id := f.submitOne(`{}`)
	for range stopSlots {
		<-begun
	}
	f.children(id, busy)
	fail <- struct{}{}
	f.children(id, func(c asyncflow.Children) bool { return c.Cancelled > 0 })
	n := f.begun()
	open()
	task := f.allEnd(id)
	assert.Equal(t, 1, task.Children.Failed)
	assert.Equal(t, n, f.begun())
	assert.Equal(t, asyncflow.StatusFailed, f.ended(id).Status)
}

// Children that wait for others, to be sent in one request, don't begin either once their parent is
// cancelled, though they themselves are not cancelled yet.
func TestNoChildInABatchBeginsAfterACancel(t *testing.T) {
	sent := make(chan string, 4)
	b := setup(t)
	b.batch("first", 4, time.Minute)
	f := b.family(dispatcher.Config{}, asyncflow.FanOut{Items: "/pages"}, func(_ context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		sent <- string(d.Lease.Context)
		return done
	})
	step := f.byHand()
	id := f.submitOne(`{"pages": [1, 2, 3]}`)
	f.waits(id)
	step()
	require.Eventually(t, func() bool { return f.Gathered() == 3 }, patience, 20*time.Millisecond)
	_, err := f.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	later := `UPDATE tenant_acme.outbox SET due = due - interval '%d hours' WHERE kind = 'stop'`
	b.quietly(fmt.Sprintf(later, -1))
	other := f.submitOne(`{"pages": [4]}`)
	f.waits(other)
	step()
	assert.Equal(t, "4", <-sent, "it fills the request")
	b.quietly(fmt.Sprintf(later, 1))
	f.children(id, func(c asyncflow.Children) bool {
		step()
		return c.Cancelled == 3
	})
	assert.Empty(t, sent)
}
