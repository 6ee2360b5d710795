package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// keyedTask is a task with its key as context that depends on tasks with other keys.
func keyedTask(key string, on ...string) asyncflow.NewTask {
	task := asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(`"` + key + `"`),
		Options: asyncflow.Options{Key: key}}
	for _, key := range on {
		task.DependsOn = append(task.DependsOn, asyncflow.Dependency{Type: "pipe", Key: key})
	}
	return task
}

// Tasks end while dependents of them are submitted, by two nodes and in any order.
func TestDependentsRunAfterTheirTasks(t *testing.T) {
	b := setup(t)
	var mu sync.Mutex
	ended := map[string]bool{}
	const n = 60
	on := func(i int) string { return fmt.Sprint("base-", i) }
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		mu.Lock()
		defer mu.Unlock()
		key := d.Lease.Options.Key
		var i int
		if _, err := fmt.Sscanf(key, "after-%d", &i); err == nil {
			assert.True(t, ended[on(i)] && ended[on((i+1)%n)], "%s came too early", key)
		}
		if d.Lease.Stage == "second" {
			ended[key] = true
		}
		return done
	}
	nodes := []*node{b.start("a", dispatcher.Config{}, send),
		b.start("b", dispatcher.Config{}, send)}
	var tasks []asyncflow.NewTask
	for i := range n {
		tasks = append(tasks, keyedTask(on(i)),
			keyedTask(fmt.Sprint("after-", i), on(i), on((i+1)%n)))
	}
	rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	var submits sync.WaitGroup
	results := make([]store.Submitted, len(tasks))
	for i, task := range tasks {
		submits.Go(func() {
			results[i] = nodes[i%2].Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
		})
	}
	submits.Wait()
	for _, r := range results {
		require.NoError(t, r.Err)
		require.Eventually(t, func() bool {
			// As the background job does.
			_, err := nodes[0].FollowUp(t.Context(), tenant)
			require.NoError(t, err)
			task, err := nodes[0].Task(t.Context(), tenant, r.ID)
			require.NoError(t, err)
			return task.Status == asyncflow.StatusSucceeded
		}, patience, 20*time.Millisecond)
	}
}

func TestADependentMeetsTheQuotaOfPendingTasks(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		return done
	})
	_, err := n.PatchTenant(t.Context(), tenant, store.TenantPatch{
		Quotas: map[asyncflow.QuotaName]float64{asyncflow.QuotaPendingTasks: 1}})
	require.NoError(t, err)
	got := n.Submit(t.Context(), tenant,
		[]asyncflow.NewTask{keyedTask("a", "x"), keyedTask("b", "x")})
	require.NoError(t, got[0].Err)
	assert.Equal(t, asyncflow.StatusWaiting, got[0].Status)
	assert.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(got[1].Err))
}

func TestASubmitWithDependenciesIsUncertainWhileATableIsLocked(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		return done
	})
	n.submit(t, 1) // so that numbers are at hand
	unlock := b.lock("tenant_acme.edges")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	got := n.Submit(ctx, tenant, []asyncflow.NewTask{keyedTask("a", "x")})[0]
	require.Equal(t, asyncflow.CodeUncertain, asyncflow.CodeOf(got.Err), "%v", got.Err)
	unlock()
	again := n.Submit(t.Context(), tenant, []asyncflow.NewTask{keyedTask("a", "x")})[0]
	require.NoError(t, again.Err)
	same := n.Submit(t.Context(), tenant, []asyncflow.NewTask{keyedTask("a", "x"),
		keyedTask("b", "a")})
	require.NoError(t, same[1].Err)
	require.NoError(t, same[0].Err)
	assert.True(t, same[0].Existing)
	assert.Equal(t, again.ID, same[0].ID)
	reused := keyedTask("a", "x")
	reused.Context = json.RawMessage(`"b"`)
	got = n.Submit(t.Context(), tenant, []asyncflow.NewTask{reused})[0]
	assert.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(got.Err))
}

// A task of an ordered flow key that waits for its dependencies is overtaken by later ones, and
// goes on when they end.
func TestDependentsOfOrderedKeysAreOvertaken(t *testing.T) {
	b := setup(t)
	end := make(chan struct{})
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if d.Lease.Options.Key == "base" {
				<-end
			}
			return done
		})
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	ordered := pipe.TaskType
	ordered.Flow = &asyncflow.Flow{Ordered: true}
	_, _, err = n.PutTaskType(t.Context(), tenant, ordered)
	require.NoError(t, err)
	dependent, later := keyedTask("dependent", "base"), keyedTask("later")
	dependent.Options.FlowKey, later.Options.FlowKey = "a", "a"
	first := n.Submit(t.Context(), tenant, []asyncflow.NewTask{keyedTask("base"), dependent})
	n.await(t, n.Submit(t.Context(), tenant, []asyncflow.NewTask{later}), asyncflow.StatusSucceeded)
	n.waitsFor(t, first[1].ID, asyncflow.WaitDependencies)
	close(end)
	require.Eventually(t, func() bool {
		_, err := n.FollowUp(t.Context(), tenant) // as the background job does
		require.NoError(t, err)
		task, err := n.Task(t.Context(), tenant, first[1].ID)
		require.NoError(t, err)
		return task.Status == asyncflow.StatusSucceeded
	}, patience, 20*time.Millisecond)
}
