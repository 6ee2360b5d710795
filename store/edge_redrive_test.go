package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

func TestDependentsAreRedrivenWithTheirTask(t *testing.T) {
	b := setupEdges(t)
	bad, fine := b.submit(newBase(""))[0].ID, b.submit(newBase(""))[0].ID
	first := b.submit(dependent(byID(fine), byID(bad)))[0].ID
	second := b.submit(dependent(byID(first)))[0].ID
	bystander := dependent(byID(bad))
	bystander.DependsOn[0].OnFailure = asyncflow.DependentRuns
	third := b.submit(bystander)[0].ID
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	b.comesTo(second, asyncflow.StatusFailed)
	b.comesTo(third, asyncflow.StatusPending)
	b.followUp()

	how := store.Redrive{Dependents: true, DryRun: true}
	task, err := b.Redrive(t.Context(), tenant, bad, how)
	require.NoError(t, err)
	assert.Equal(t, []asyncflow.TaskID{first, second}, task.Redriven)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	b.comesTo(first, asyncflow.StatusFailed)

	how.DryRun = false
	task, err = b.Redrive(t.Context(), tenant, bad, how)
	require.NoError(t, err)
	assert.Equal(t, []asyncflow.TaskID{first, second}, task.Redriven)
	b.followUp()
	for _, id := range task.Redriven {
		waiting := b.comesTo(id, asyncflow.StatusWaiting)
		assert.Equal(t, asyncflow.WaitDependencies, waiting.WaitsFor)
		for _, on := range waiting.Dependencies {
			assert.Equal(t, asyncflow.DependencyRunning, on.Status)
		}
	}
	b.checkTokens("pipe")
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.comesTo(first, asyncflow.StatusPending)
	b.comesTo(second, asyncflow.StatusWaiting)
	_, err = b.Cancel(t.Context(), tenant, first, "")
	require.NoError(t, err)
	b.comesTo(second, asyncflow.StatusFailed)
	b.checkTokens("pipe")
}

func TestTheDeletionOfATypeFailsItsDependents(t *testing.T) {
	b := setupEdges(t)
	got := b.submit(dependent(byKey("never")))[0].ID
	b.followUp()
	err := b.DeleteTaskType(t.Context(), tenant, "base", false)
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	assert.ErrorContains(t, err, "tasks wait for those of task type base (1 of pipe)")
	b.comesTo(got, asyncflow.StatusWaiting)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "base", true))
	task := b.comesTo(got, asyncflow.StatusFailed)
	assert.Contains(t, task.Error, `depends_on[0]: task of`)
	assert.Contains(t, task.Error, `was deleted`)
}
