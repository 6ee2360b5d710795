package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Children that a redrive of their parent has not reached yet get a priority that the parent was
// given meanwhile.
func TestPriorityOfChildrenToRedrive(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `"a"`),
		spawned("base", `"b"`), spawned("pipe", `"middle"`))
	b.followUp()
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `"c"`))
	b.followUp()
	_, err := b.Cancel(t.Context(), tenant, root, "")
	require.NoError(t, err)
	b.followUp()
	_, err = b.Redrive(t.Context(), tenant, root, store.Redrive{})
	require.NoError(t, err)
	b.SetChunks(2, 2, 1)
	_, err = b.FollowUpRows(t.Context(), tenant, 1)
	require.NoError(t, err)
	require.Equal(t, &asyncflow.Children{Total: 3, Pending: 1, Cancelled: 2}, b.task(root).Children,
		"one is redriven")
	high := asyncflow.Priority{600}
	b.change(root, asyncflow.Patch{Priority: high})
	b.followUp()
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: high, `"b"`: high, `"c"`: high},
		b.priorities())
	require.Equal(t, high, b.childOf("pipe", `"middle"`).Options.Priority)
	b.endAll(b.kind("base"), 3, "")
	b.endAll(pipe, 1, "")
	b.endAll(pipe, 1, "")
	require.Equal(t, asyncflow.StatusSucceeded, b.task(root).Status)
	b.checkTokens("base")
	b.checkTokens("pipe")
	require.Zero(t, b.sweep())
}

// An operation that gives a task another priority may look for its tasks for a while. Children
// that are made meanwhile get it, too.
func TestPriorityOfManyBesideNewChildren(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `1`))
	high := asyncflow.Priority{600}
	_, due := b.start(store.PrioritizeTasks, store.NewOperation{Priority: high})
	hold, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer hold.Rollback(t.Context())
	_, err = hold.Exec(t.Context(), `LOCK TABLE tenant_acme.operations`)
	require.NoError(t, err)
	stepped := make(chan error, 1)
	go func() {
		_, err := b.StepOperation(t.Context(), due, b.Submit)
		stepped <- err
	}()
	eventually(t, "the step waits", func() bool {
		return b.count(`SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	b.followUp()
	require.Nil(t, b.childOf("base", `1`).Options.Priority)
	require.NoError(t, hold.Commit(t.Context()))
	require.NoError(t, <-stepped)
	b.followUp()
	require.Equal(t, high, b.task(id).Options.Priority)
	require.Equal(t, high, b.childOf("base", `1`).Options.Priority)
	b.checkTokens("base")
}

// A redrive of many tasks looks at once for the ones that have children.
func TestRedriveOfManyIsFewStatements(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	second, line := mortal(t, b)
	var statements []int
	for _, n := range []int{1, 1, 20} {
		for i := range n {
			b.submit(newTask(fmt.Sprint(i)))
		}
		for _, l := range b.leaseAll(b.known(), n) {
			b.settle(b.known(), l, badEnd)
		}
		_, due := b.start(store.RedriveTasks, store.NewOperation{})
		line.arm(1_000_000, true, false)
		step, err := second.StepOperation(t.Context(), due, b.Submit)
		require.NoError(t, err)
		require.Equal(t, n, step.Done)
		statements = append(statements, line.sent())
		line.mend()
		for _, l := range b.leaseAll(b.known(), n) {
			b.settle(b.known(), l, goodEnd)
		}
	}
	more := statements[2] - statements[1]
	require.Less(t, more, 25, "19 more journal rows are written, and little else")
}
