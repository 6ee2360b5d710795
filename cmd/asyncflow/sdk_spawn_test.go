package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// A worker starts tasks with an answer, and with a report. A failed attempt starts none, nor one
// that starts what isn't allowed.
func TestSDKSpawn(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	w := startSDKWorker(t, sdk.Config{})
	_, err := c.PutTaskType(t.Context(), "part", client.TaskTypeSpec{
		Stages: []client.Stage{stage("only")}})
	require.NoError(t, err)
	part := func(context string) client.SpawnedTask {
		return client.SpawnedTask{Type: "part", Context: client.JSON(context)}
	}
	sdk.Handle(w.Worker, "part", "only", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		return task.Context, nil
	})
	sdk.Handle(w.Worker, "pipe", "split", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		if task.Attempt == 1 {
			return counted{}, sdk.Spawn(client.SpawnedTask{Type: "parts", Context: client.JSON(`1`)})
		}
		return counted{2}, sdk.Next("merge").Spawn(part(`{"n": 1}`), part(`{"n": 2}`))
	})
	sdk.Handle(w.Worker, "pipe", "merge", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		if task.Attempt == 1 {
			return counted{}, errors.Join(errors.New("busy"))
		}
		return task.Context, sdk.Spawn(part(`{"n": 3}`))
	}, sdk.AnswerWithin(-1))
	split, merge := stage("split"), stage("merge")
	split.Spawn = []string{"part"}
	merge.Spawn = split.Spawn
	w.pipe(t, c, split, merge)
	task, outcomes := ended(t, c, submit(t, c, `{"n": 0}`))
	require.Equal(t, "split failed, split done, merge failed, merge done", outcomes)
	attempts, err := c.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	require.Contains(t, attempts[0].Error, `invalid_spawn: spawn[0].type "parts" is not allowed in `+
		`stage "split": it must be "part"`)
	require.Eventually(t, func() bool {
		list, err := c.List(t.Context(), client.ListParams{Type: "part", Parent: task.ID,
			Status: client.StatusSucceeded})
		return err == nil && len(list.Data) == 3
	}, patience, 20*time.Millisecond)
	shown := runCLI(t, map[string]string{"ASYNCFLOW_URL": p.url,
		"ASYNCFLOW_TOKEN": p.token()}, "tasks", "get", task.ID).stdout
	require.Contains(t, shown, "3 part (asyncflow tasks list --type part --parent "+task.ID+")")
	list, err := c.List(t.Context(), client.ListParams{Type: "part"})
	require.NoError(t, err)
	shown = runCLI(t, map[string]string{"ASYNCFLOW_URL": p.url,
		"ASYNCFLOW_TOKEN": p.token()}, "tasks", "get", list.Data[0].ID).stdout
	require.Regexp(t, `(?m)^parent +`+task.ID+`$`, shown)
	shown = runCLI(t, map[string]string{"ASYNCFLOW_URL": p.url,
		"ASYNCFLOW_TOKEN": p.token()}, "types", "get", "pipe").stdout
	require.Regexp(t, `(?m)^merge .* part$`, shown)
}

// A type that starts its own tasks without end comes to the greatest depth.
func TestSDKSpawnLoopEnds(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	w := startSDKWorker(t, sdk.Config{})
	sdk.Handle(w.Worker, "pipe", "again", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		return task.Context, sdk.Spawn(client.SpawnedTask{Type: "pipe", Context: client.JSON(`{}`)})
	})
	again := stage("again", func(s *client.Stage) { s.Retry.MaxAttempts = 1 })
	again.Spawn = []string{"pipe"}
	w.pipe(t, c, again)
	submit(t, c, `{}`)
	var failed []string
	require.Eventually(t, func() bool {
		list, err := c.List(t.Context(), client.ListParams{Type: "pipe",
			Status: client.StatusFailed})
		for _, one := range list.Data {
			failed = append(failed, one.Error)
		}
		return err == nil && len(failed) > 0
	}, patience, 20*time.Millisecond)
	require.Contains(t, failed[0], "8 tasks in a row have started one another")
	list, err := c.List(t.Context(), client.ListParams{Type: "pipe"})
	require.NoError(t, err)
	require.Len(t, list.Data, 1+asyncflow.MaxDepth)
	require.False(t, strings.Contains(failed[0], "internal"))
}

// A task waits for the tasks that its handler starts, and the next stage reads their results.
func TestSDKJoin(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	w := startSDKWorker(t, sdk.Config{})
	_, err := c.PutTaskType(t.Context(), "part", client.TaskTypeSpec{
		Stages: []client.Stage{stage("only")}})
	require.NoError(t, err)
	sdk.Handle(w.Worker, "part", "only", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		return counted{task.Context.N * 10}, nil
	})
	sdk.Handle(w.Worker, "pipe", "split", func(
		_ context.Context, _ sdk.Task[counted],
	) (counted, error) {
		var tasks []client.SpawnedTask
		for _, doc := range []string{`{"n": 1}`, `{"n": 2}`, `{"n": 3}`} {
			tasks = append(tasks, client.SpawnedTask{Type: "part", Context: client.JSON(doc)})
		}
		return counted{7}, sdk.Spawn(tasks...).Join(sdk.JoinOptions{MaxParallel: 2})
	})
	sdk.Handle(w.Worker, "pipe", "merge", func(
		ctx context.Context, task sdk.Task[sdk.Joined],
	) (sum counted, err error) {
		for part, err := range sdk.Outputs[counted](ctx, task) {
			if err != nil {
				return sum, err
			}
			sum.N += part.N
		}
		return sum, nil
	})
	split := stage("split")
	split.Spawn = []string{"part"}
	w.pipe(t, c, split, stage("merge"))
	task, outcomes := ended(t, c, submit(t, c, `{"n": 0}`))
	require.Equal(t, "split done, split joined, merge done", outcomes)
	require.JSONEq(t, `{"n": 60}`, string(task.Result))
}
