package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Tasks that fail by lost leases end at max_steps, too.
func TestLostLeasesEndAtMaxSteps(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].OnFailure = &asyncflow.StageFailure{Next: "second"}
	spec.Stages[1].OnFailure = &asyncflow.StageFailure{Next: "first"}
	for i := range spec.Stages {
		spec.Stages[i].Retry.MaxAttempts = 1
	}
	spec.MaxSteps = 3
	b.put(spec)
	id := b.submit(newTask(`0`))[0].ID
	for _, stage := range []string{"first", "second", "first"} {
		require.Equal(t, stage, b.leaseAll(b.known(), 1)[0].Stage)
		b.loseAll(b.known(), 1)
	}
	task := b.task(id)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	require.Contains(t, task.Error, "it took 3 steps; max_steps is 3: first → second → first. "+
		"It failed: the lease ran out")
	b.checkTokens("pipe")
}
