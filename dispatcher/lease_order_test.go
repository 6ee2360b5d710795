package dispatcher_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// Two nodes deliver a mixed set of tasks in the order of their order_time: none is overtaken by
// more tasks than are in flight on both at once.
func TestOrderOverTwoNodes(t *testing.T) {
	const nodes, held, rounds = 2, 8, 20
	b := setup(t)
	// No task reaches the second stage. A single endpoint of a type may use all its slots.
	b.exec(`DELETE FROM tenant_acme.endpoints WHERE stage = 'second'`)
	silent := b.open(store.Config{Node: "silent"})
	want := mixedTasks(t, silent, nodes*held*rounds)

	// A round is full when all that may be in flight on both nodes is: four fifths of their slots.
	// So a task in flight arrives before the next round begins.
	arrivals, over := make(chan arrival), make(chan struct{})
	deliver := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		a := arrival{d.Lease.ID, make(chan struct{})}
		select {
		case arrivals <- a:
			<-a.answer
		case <-over:
		}
		return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}
	}
	defer close(over)
	for _, name := range []string{"a", "b"} {
		b.start(name, dispatcher.Config{Concurrency: held * 5 / 4}, deliver)
	}
	var got []asyncflow.TaskID
	for range rounds {
		var round []arrival
		for len(round) < nodes*held {
			select {
			case a := <-arrivals:
				round, got = append(round, a), append(got, a.id)
			case <-time.After(patience):
				require.Fail(t, "a round was not filled", "%d of %d", len(round), nodes*held)
			}
		}
		for _, a := range round {
			close(a.answer)
		}
	}
	require.ElementsMatch(t, want, got)
	require.LessOrEqual(t, mostOvertaken(want, got), nodes*held)
}

type arrival struct {
	id     asyncflow.TaskID
	answer chan struct{}
}

// mixedTasks makes tasks with priorities of all kinds, some in their second attempt, some changed
// and some delayed until a moment ago, and returns them in the order in which they are due.
func mixedTasks(t *testing.T, n *node, count int) []asyncflow.TaskID {
	tasks := make([]asyncflow.NewTask, count)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(`1`)}
		switch i % 5 {
		case 1:
			tasks[i].Options.Priority = asyncflow.Priority{i % 50}
		case 2:
			tasks[i].Options.Priority = asyncflow.Priority{i % 7, 3600}
		case 3:
			tasks[i].Delay = asyncflow.NewDuration(time.Duration(i) * 100 * time.Microsecond)
		}
	}
	results := n.Submit(t.Context(), tenant, tasks)
	for i := 4; i < count; i += 15 {
		_, err := n.Change(t.Context(), tenant, results[i].ID,
			asyncflow.Patch{Priority: asyncflow.Priority{i % 40}})
		require.NoError(t, err)
	}
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	failed, _, err := n.Lease(t.Context(), pipe, count/10)
	require.NoError(t, err)
	for _, l := range failed {
		done := make(chan store.Settled, 1)
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}
		n.Settle(
			tenant,
			asyncflow.Settlement{
				Lease:   l,
				Outcome: o,
				Verdict: asyncflow.Decide(pipe.TaskType, l, o, n.Clock.Now()),
			},
			func(r store.Settled) { done <- r },
		)
		require.NoError(t, (<-done).Err)
	}
	var all []store.Task
	for _, r := range results {
		require.NoError(t, r.Err)
		task, err := n.Task(t.Context(), tenant, r.ID)
		require.NoError(t, err)
		all = append(all, task)
	}
	slices.SortFunc(all, func(a, b store.Task) int {
		return cmp.Or(a.OrderTime.Compare(b.OrderTime), cmp.Compare(a.ID.Number, b.ID.Number))
	})
	last := all[len(all)-1].OrderTime
	require.Eventually(t, func() bool { return n.Clock.Now().After(last) }, patience,
		20*time.Millisecond,
		"all of them are due")
	ids := make([]asyncflow.TaskID, len(all))
	for i, task := range all {
		ids[i] = task.ID
	}
	return ids
}

// mostOvertaken returns the greatest number of tasks, later in want, that precede a task in got.
func mostOvertaken(want, got []asyncflow.TaskID) int {
	rank := map[asyncflow.TaskID]int{}
	for i, id := range want {
		rank[id] = i
	}
	most := 0
	for i, id := range got {
		before := 0
		for _, earlier := range got[:i] {
			if rank[earlier] > rank[id] {
				before++
			}
		}
		most = max(most, before)
	}
	return most
}
