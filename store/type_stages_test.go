package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Tasks in a removed stage go on with the stage that it is mapped to, in whichever tables their
// token rows are.
func TestRemovedStageIsMapped(t *testing.T) {
	b := setup(t)
	old := twoStages()
	pipe := b.put(old)
	running := b.submit(newTask(`1`))[0].ID
	l := b.lease(pipe, 1)[0]
	ready := b.submit(newTask(`2`))[0].ID
	later := newTask(`3`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	waiting := b.submit(later)[0].ID

	next := old
	next.Stages = []asyncflow.Stage{old.Stages[1], {Name: "third"}}
	next = next.WithDefaults()
	_, _, err := b.PutTaskType(t.Context(), tenant, next)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "stage_mapping can say where they go on")

	next.StageMapping = map[string]string{"first": "third"}
	would, _, err := b.CheckTaskType(t.Context(), tenant, next)
	require.NoError(t, err)
	require.Equal(t, 2, would.Version)
	require.Equal(t, 1, pipe.Version)
	known, err := b.TaskType(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	require.Equal(t, 1, known.Version, "it was a dry run")

	pipe = b.put(next)
	require.Equal(t, next.StageMapping, pipe.StageMapping)
	next.StageMapping = nil
	pipe = b.put(next)
	require.Equal(t, 2, pipe.Version, "the same document without its mapping changes nothing")

	place := func(id asyncflow.TaskID) []any {
		task, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		return []any{task.Status, task.Stage, task.Attempt}
	}
	require.Equal(t, []any{asyncflow.StatusRunning, "first", 1}, place(running),
		"its attempt goes on")
	require.Equal(t, []any{asyncflow.StatusPending, "third", 1}, place(ready))
	require.Equal(t, []any{asyncflow.StatusWaiting, "third", 1}, place(waiting))

	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: []byte(`"out"`)})
	contexts := map[asyncflow.TaskID]string{running: `"out"`, ready: `2`}
	for _, l := range b.lease(pipe, 2) {
		require.Equal(t, []any{"third", 1, contexts[l.ID]},
			[]any{l.Stage, l.Attempt, string(l.Context)})
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		require.Equal(t, asyncflow.StatusSucceeded, place(l.ID)[0])
	}

	// If the target of a mapping is removed, it needs a mapping too.
	last := old
	last.Stages = old.Stages[1:]
	_, _, err = b.PutTaskType(t.Context(), tenant, last)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err),
		"a task waits in first, which is mapped to third")
	last.StageMapping = map[string]string{"third": "second"}
	require.Equal(t, map[string]string{"first": "second", "third": "second"},
		b.put(last).StageMapping)
	require.Equal(t, []any{asyncflow.StatusWaiting, "second", 1}, place(waiting))
}

// A task that failed in a removed stage is redriven in the stage that it is mapped to.
func TestRedriveFromRemovedStage(t *testing.T) {
	b := setup(t)
	old := twoStages()
	pipe := b.put(old)
	id := b.submit(newTask(`1`))[0].ID
	b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	next := old
	next.Stages = old.Stages[1:]
	next.StageMapping = map[string]string{"first": "second"}
	pipe = b.put(next)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	require.Equal(t, "second", b.lease(pipe, 1)[0].Stage)
}

// A redriven stage gets the same input as before, whatever the earlier stages are called now.
func TestRedriveKeepsTheContext(t *testing.T) {
	b := setup(t)
	old := twoStages()
	old.Stages = append(old.Stages, asyncflow.Stage{Name: "third"})
	old = old.WithDefaults()
	pipe := b.put(old)
	run := func(stage, context string, o asyncflow.Outcome) {
		t.Helper()
		l := b.lease(pipe, 1)[0]
		require.Equal(t, []any{stage, context}, []any{l.Stage, string(l.Context)})
		b.settle(pipe, l, o)
	}
	done := func(output string) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: []byte(output)}
	}
	rejected := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}
	id := b.submit(newTask(`"ctx"`))[0].ID
	run("first", `"ctx"`, done(`"of first"`))
	run("second", `"of first"`, done(`"of second"`))
	run("third", `"of second"`, rejected)
	redrive := func(stage string) {
		t.Helper()
		_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: stage})
		require.NoError(t, err)
	}
	redrive("second")
	run("second", `"of first"`, done(`"of second again"`))
	run("third", `"of second again"`, rejected)

	renamed := old
	renamed.Stages = []asyncflow.Stage{{Name: "renamed"}, old.Stages[2]}
	renamed = renamed.WithDefaults()
	renamed.StageMapping = map[string]string{"first": "renamed", "second": "third"}
	pipe = b.put(renamed)
	redrive("")
	run("third", `"of second again"`, rejected)
	redrive("renamed")
	run("renamed", `"ctx"`, rejected)
}

// A new version applies to tasks that are not leased yet, and to the end of those that are
// leased.
func TestNewVersionApplies(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	pipe := b.put(spec)
	b.submit(newTask(`1`), newTask(`2`))
	held := b.lease(pipe, 1)[0]
	spec.Stages = append(spec.Stages[:1:1], asyncflow.Stage{Name: "between"}, spec.Stages[1])
	spec.Stages[0].Timeout = asyncflow.NewDuration(time.Minute)
	pipe = b.put(spec.WithDefaults())
	next := b.lease(pipe, 1)[0]
	require.Greater(t, next.Until.Sub(next.LeasedAt), time.Minute, "the new timeout")
	require.Less(t, held.Until.Sub(held.LeasedAt), time.Minute)
	b.settle(pipe, held, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	require.Equal(t, "between", b.lease(pipe, 1)[0].Stage)
}
