package dispatcher_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// Workers ask for the children of a task whose stage fans out, and get none while they are paused:
// not even one that came back in line after the pause.
func TestClaimedChildren(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Shards: 3},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			assert.Fail(t, "it was pushed")
			return done
		})
	f.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	id := f.submitOne(`1`)
	one := f.claim(t, "first", "anna", 1)[0]
	_, err := f.PauseTree(t.Context(), tenant, id, "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the unclaimed ones
		all, err := f.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id, Limit: 2})
		require.NoError(t, err)
		return all[0].WaitsFor == asyncflow.WaitParent && all[1].WaitsFor == asyncflow.WaitParent
	}, patience, 20*time.Millisecond)
	f.ReleaseClaims(tenant, []asyncflow.Lease{one.Lease}, "given back")
	f.children(id, func(c asyncflow.Children) bool { return c.Running == 0 })
	all, err := f.Claim(t.Context(), tenant, dispatcher.ClaimRequest{Type: "pipe", Stage: "first",
		Claimer: "bob", Max: 3})
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = f.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	for got := 0; got < 3; {
		for _, d := range f.claim(t, "first", "carol", 3) {
			assert.Equal(t, 3, d.Lease.Options.Child.Count)
			f.complete(t, d)
			got++
		}
	}
	task := f.ended(id)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.Len(t, f.joined, 1)
}

// Tasks that stand in line for claimers when their stage gets a fan-out get children, and aren't
// handed out themselves.
func TestAClaimedStageGetsAFanOut(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			return done
		})
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	tasks := n.submit(t, 3)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages...)
	spec.Stages[0].FanOut = &asyncflow.FanOut{Shards: 2}
	_, _, err = n.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	for got := 0; got < 6; {
		for _, d := range n.claim(t, "first", "anna", 10) {
			require.NotNil(t, d.Lease.Options.Child)
			n.complete(t, d)
			got++
		}
	}
	n.await(t, tasks, asyncflow.StatusSucceeded)
}
