package tasks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// A read of a task that began before another one ended gets only the rows up to its state, and a
// path that was read is not changed by what is added to it.
func TestPathsThatAreKnown(t *testing.T) {
	t.Parallel()
	var known knownPaths
	pipe := &config.Type{}
	task := func(seq int) *Task { return &Task{ID: asyncflow.TaskID{Number: 1}, seq: seq} }
	p := newPath()
	for seq := range longPath {
		p.add(pathRow{seq: seq + 1, stage: "first", outcome: asyncflow.OutcomeDone})
	}
	known.note(pipe, 1, p)
	require.Zero(t, known.get(pipe, task(longPath-1)).until)
	for range 2 {
		p = known.get(pipe, task(longPath))
		require.Equal(t, []int{longPath, longPath}, []int{p.until, p.steps})
		p.add(pathRow{stage: "first"})
		require.Equal(t, longPath+1, p.ofStage["first"])
	}
	for id := range 2 * mostPaths {
		known.note(pipe, int64(id), p)
	}
	require.Len(t, known.known, mostPaths)
	require.Less(t, cap(p.visits), 3*pathVisits, "that is what a path takes")
}
