package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A node that doesn't know of a roll finds with which stage a task went on there.
func TestTheSameChoiceInANewRoll(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	reporting, reading := behind(t, b), behind(t, b)
	b.roll()
	b.goTo(l, to("second", `1`))

	_, same, err := reporting.WrittenAs(t.Context(), reporting.known(), id, l.Seq, to("second", `1`))
	require.NoError(t, err)
	require.True(t, same)
	attempts, err := reading.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, "second", attempts[0].NextStage)
}

// A node that doesn't know of a roll knows a late report again.
func TestTheSameLateChoiceInANewRoll(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	late := behind(t, b)
	b.roll()
	b.loseAll(b.known(), 1)
	for _, node := range []*bundle{b, late} {
		_, taken, err := node.SettleLate(t.Context(), node.known(), id, l.Seq, to("second", `1`))
		require.NoError(t, err)
		require.True(t, taken)
	}
}

// A node that doesn't know that a roll is drained answers reports and shows attempts, also of types
// without next.
func TestReportsAfterADrain(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	reporting, reading := behind(t, b), behind(t, b)
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	b.roll()
	b.goTo(l, done)
	drained, err := b.DrainRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	require.True(t, drained)
	cleared, err := b.ClearRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, cleared)

	_, same, err := reporting.WrittenAs(t.Context(), reporting.known(), id, l.Seq, done)
	require.NoError(t, err)
	require.True(t, same)
	_, _, err = reading.AttemptPage(t.Context(), tenant, id, store.AttemptPage{Limit: 1})
	require.NoError(t, err)
}

// The path is that of the state that is shown, also while the task goes on.
func TestPathOfAState(t *testing.T) {
	b := setup(t)
	spec := looping()
	spec.MaxSteps = 400
	b.put(spec)
	id := b.submit(newTask(`0`))[0].ID
	over := make(chan struct{})
	seen := make(chan []store.Task, 1)
	go func() {
		var all []store.Task
		for {
			task, err := b.Task(t.Context(), tenant, id)
			if err == nil {
				all = append(all, task)
			}
			select {
			case <-over:
				seen <- all
				return
			default:
			}
		}
	}()
	for i := range 250 {
		b.goTo(b.leaseAll(b.known(), 1)[0], to([]string{"second", "first"}[i%2], `1`))
	}
	close(over)
	task := b.task(id)
	require.Equal(t, 251, task.Steps)
	require.Len(t, task.Path, 100)
	require.Equal(t, []store.Visit{visit("second", 76, 1), visit("first", 77, 1)}, task.Path[:2])
	require.Equal(t, []store.Visit{visit("second", 125, 1), visit("first", 126, 0)}, task.Path[98:])
	for _, task := range <-seen {
		last := task.Path[len(task.Path)-1]
		require.Equal(t, task.Stage, last.Stage)
		for i, v := range task.Path[1:] {
			require.NotEqual(t, task.Path[i].Stage, v.Stage, "it goes to and fro")
		}
	}
}
