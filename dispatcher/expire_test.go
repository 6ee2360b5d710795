package dispatcher_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// overdueTask is a task past its time to begin.
func overdueTask(n *node) asyncflow.NewTask {
	return asyncflow.NewTask{Type: "pipe", Context: json.RawMessage("1"),
		StartBy: asyncflow.DeadlineAt(n.Clock.Now().Add(-time.Second))}
}

// A task is not delivered after its start_by, by a push or a claim, and fails at once: nothing
// here runs the job.
func TestNothingAfterStartBy(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]asyncflow.Mode{"push": asyncflow.ModePush,
		"claim": asyncflow.ModeClaim} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			n := b.start("node", dispatcher.Config{Concurrency: 10}, func(_ context.Context,
				d asyncflow.Delivery) asyncflow.Outcome {
				assert.Nil(t, d.Lease.Options.Lifetime, "it was sent")
				return done
			})
			n.mode(t, mode, asyncflow.ModePush)
			late := n.Submit(t.Context(), tenant, []asyncflow.NewTask{overdueTask(n)})[0]
			require.NoError(t, late.Err)
			if mode == asyncflow.ModeClaim {
				plain := n.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe",
					Context: json.RawMessage("2")}})[0]
				require.NoError(t, plain.Err)
				require.Equal(t, plain.ID, n.claim(t, "first", "ann", 1)[0].Lease.ID)
			}
			require.Eventually(t, func() bool {
				task, err := n.Task(t.Context(), tenant, late.ID)
				require.NoError(t, err)
				return task.Status == asyncflow.StatusFailed
			}, patience, 10*time.Millisecond)
			all, err := n.Attempts(t.Context(), tenant, late.ID)
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, "expired", all[0].Code)
		})
	}
}

// A task that expires while it waits to be sent together with other tasks is not sent.
func TestNothingExpiredInABatch(t *testing.T) {
	b := setup(t)
	b.batch("first", 100, asyncflow.MaxBatchWait)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{}, r)
	results := n.Submit(t.Context(), tenant, []asyncflow.NewTask{
		{Type: "pipe", Context: json.RawMessage("1"),
			EndBy: asyncflow.DeadlineAfter(asyncflow.MaxBatchWait / 2)},
		{Type: "pipe", Context: json.RawMessage("2")}})
	for _, one := range results {
		require.NoError(t, one.Err)
	}
	late, plain := results[0], results[1]
	n.await(t, []store.Submitted{late}, asyncflow.StatusFailed)
	n.await(t, []store.Submitted{plain}, asyncflow.StatusSucceeded)
	assert.Equal(t, []int{1}, r.sizes("first"))
	all, err := n.Attempts(t.Context(), tenant, late.ID)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.OutcomeExpired, all[len(all)-1].Outcome)
}

// A task past its time to begin makes no children: no request would be sent for it, so that only
// the check after the lease can see it.
func TestNoChildrenAfterStartBy(t *testing.T) {
	b := setup(t)
	n := b.start("node", dispatcher.Config{Concurrency: 10}, func(_ context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		assert.Nil(t, d.Lease.Options.Child, "a child was sent")
		return done
	})
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages...)
	spec.Stages[0].FanOut = &asyncflow.FanOut{Shards: 2}
	_, _, err = n.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
	late := n.Submit(t.Context(), tenant, []asyncflow.NewTask{overdueTask(n)})[0]
	require.NoError(t, late.Err)
	n.await(t, []store.Submitted{late}, asyncflow.StatusFailed)
	all, err := n.Attempts(t.Context(), tenant, late.ID)
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "expired", all[0].Code)
}

// No deadline that a worker is told is later than the end of its task, by a push or a claim.
func TestDeadlinesEndWithTheLifetime(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]asyncflow.Mode{"push": asyncflow.ModePush,
		"claim": asyncflow.ModeClaim} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			sent := make(chan asyncflow.Delivery, 1)
			n := b.start("node", dispatcher.Config{Concurrency: 10}, func(_ context.Context,
				d asyncflow.Delivery) asyncflow.Outcome {
				sent <- d
				return last
			})
			n.mode(t, mode, asyncflow.ModePush)
			end := n.Clock.Now().Add(asyncflow.FirstClaim - time.Second).Truncate(time.Microsecond)
			r := n.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe",
				Context: json.RawMessage("1"), EndBy: asyncflow.DeadlineAt(end)}})[0]
			require.NoError(t, r.Err)
			var d asyncflow.Delivery
			if mode == asyncflow.ModeClaim {
				d = n.claim(t, "first", "ann", 1)[0]
			} else {
				d = <-sent
			}
			require.Equal(t, r.ID, d.Lease.ID)
			assert.True(t, end.Equal(d.Deadline), "%s, not %s", d.Deadline, end)
			assert.False(t, d.Latest.After(end))
		})
	}
}
