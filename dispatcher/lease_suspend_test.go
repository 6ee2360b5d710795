package dispatcher_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// suspend suspends the tenant, or resumes it.
func (n *node) suspend(t *testing.T, suspended bool) {
	t.Helper()
	_, err := n.PatchTenant(t.Context(), tenant, store.TenantPatch{Suspend: &suspended})
	require.NoError(t, err)
	n.QuiesceTenant(t.Context(), tenant)
}

// knows waits until a node knows that the tenant is suspended, or that it isn't.
func (n *node) knows(t *testing.T, suspended bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		known, ok := n.Catalog.Tenant(tenant)
		return ok && known.Suspended == suspended
	}, patience, 20*time.Millisecond)
}

// While a tenant is suspended, running attempts finish, and no node leases any task. After the
// resume all tasks are done.
func TestSuspend(t *testing.T) {
	b := setup(t)
	arrived, finish := make(chan struct{}, 100), make(chan struct{})
	send := func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		arrived <- struct{}{}
		<-finish
		return done
	}
	one := b.start("a", dispatcher.Config{}, send)
	two := b.start("b", dispatcher.Config{}, send)
	running := one.submit(t, 1)
	<-arrived
	one.suspend(t, true)
	two.knows(t, true)
	waiting := append(one.submit(t, 5), two.submit(t, 5)...)
	close(finish)
	require.Eventually(t, func() bool { // its first stage is done, the second one waits
		task, err := one.Task(t.Context(), tenant, running[0].ID)
		return err == nil && task.Status == asyncflow.StatusPending && task.Stage == "second"
	}, patience, 20*time.Millisecond)
	select { // every wake-up of the submits is worked off
	case <-arrived:
		require.Fail(t, "something was leased while the tenant was suspended")
	case <-time.After(200 * time.Millisecond):
	}
	two.suspend(t, false)
	one.await(t, append(waiting, running...), asyncflow.StatusSucceeded)
}

// A tenant is suspended and resumed repeatedly while tasks come in: none is lost, and none begins
// while both nodes know of the suspension.
func TestSuspendUnderLoad(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	var mu sync.Mutex
	halted, early := false, 0
	send := func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		mu.Lock()
		if halted {
			early++
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		return done
	}
	one := b.start("a", dispatcher.Config{Concurrency: 20}, send)
	two := b.start("b", dispatcher.Config{Concurrency: 20}, send)
	var all []store.Submitted
	var submitted atomic.Int32
	var submitting sync.WaitGroup
	stop := make(chan struct{})
	submitting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				all = append(all, one.submit(t, 20)...)
				submitted.Store(int32(len(all)))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	for range 4 {
		enough := submitted.Load() + 120
		require.Eventually(t, func() bool { return submitted.Load() >= enough }, patience,
			20*time.Millisecond)
		one.suspend(t, true)
		two.knows(t, true)
		require.Eventually(t, func() bool { // what was begun before is over
			stats, err := one.Stats(t.Context(), tenant, "pipe")
			return err == nil && stats[0].Running == 0
		}, patience, 20*time.Millisecond)
		mu.Lock()
		halted = true
		mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		mu.Lock()
		halted = false
		mu.Unlock()
		two.suspend(t, false)
	}
	close(stop)
	submitting.Wait()
	one.await(t, all, asyncflow.StatusSucceeded)
	assert.Zero(t, early, "leased while the tenant was suspended")
}
