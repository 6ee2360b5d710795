package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// The load of a stage counts what is with its workers and what more of them could begin, and knows
// how long attempts took and how many started.
func TestStageLoad(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	load := func(stage string) asyncflow.StageLoad {
		t.Helper()
		load, known, err := b.StageLoad(t.Context(), tenant, "pipe", stage)
		require.NoError(t, err)
		require.Equal(t, "pipe", known.Name)
		return load
	}
	assert.Zero(t, load("first"))
	b.submit(newTask(`1`), newTask(`2`), newTask(`3`))
	later := newTask(`4`)
	later.RunAt = b.Clock.Now().Add(time.Hour)
	b.submit(later)
	assert.Equal(t, asyncflow.StageLoad{Backlog: 3}, load("first"), "without the delayed one")

	done := b.startOne()
	b.startOne()
	lost := b.startOne()
	b.settle(b.known(), done, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Duration: 4 * time.Second})
	b.settle(b.known(), lost, asyncflow.Outcome{Kind: asyncflow.OutcomeLost, Duration: time.Hour})
	require.NoError(t, b.WriteMinutes(t.Context()))
	first := load("first")
	assert.EqualValues(t, 1, first.Running)
	assert.Equal(t, 4*time.Second, first.Service, "what no worker ended says nothing")
	assert.Positive(t, first.Started)
	assert.LessOrEqual(t, first.Started, 3/asyncflow.FailureWindow.Seconds())
	assert.Equal(t, asyncflow.StageLoad{Backlog: 1}, load("second"))

	_, err := b.Pause(t.Context(), tenant, "pipe", "")
	require.NoError(t, err)
	assert.Zero(t, load("second").Backlog)

	_, _, err = b.StageLoad(t.Context(), tenant, "pipe", "third")
	require.ErrorContains(t, err, `has no stage "third"`)
	_, _, err = b.StageLoad(t.Context(), tenant, "other", "first")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}
