package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// reruns returns how many tasks of pipe run another one again, and how many others these are.
func (b *bundle) reruns() (tasks, others int) {
	b.t.Helper()
	for _, position := range b.known().Rolls() {
		var n, m int
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), b.at(position, `
			SELECT count(*), count(DISTINCT options->>'rerun_of') FROM {task}
			WHERE type = {number} AND options->>'rerun_of' IS NOT NULL`)).Scan(&n, &m))
		tasks += n
		others += m
	}
	return tasks, others
}

// A final task runs again as a new one, with what it was about and without what was its alone.
func TestRerun(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		pipe := b.put(twoStages())
		old := newTask(`{"a":1.0}`)
		old.Options = asyncflow.Options{Key: "k", FlowKey: "f", Priority: asyncflow.Priority{60},
			Retry:  &asyncflow.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Seconds(-1)},
			Labels: asyncflow.Labels{User: "anna", Tags: []string{"march"}}}
		id := b.submit(old)[0].ID
		_, err := b.Rerun(t.Context(), tenant, id)
		require.ErrorContains(t, err, "not final")
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
		for range 2 {
			b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
				Output: json.RawMessage(`"out"`)})
		}
		before := b.task(id)
		require.Equal(t, asyncflow.StatusSucceeded, before.Status)
		task, err := b.Rerun(t.Context(), tenant, id)
		require.NoError(t, err)
		made := b.submit(task)[0].ID
		require.NotEqual(t, id, made)
		want := old.Options
		want.Key = ""
		want.RerunOf = id.String()
		got := b.task(made)
		require.Equal(t, want, got.Options)
		require.Equal(t, []any{`{"a":1.0}`, asyncflow.StatusPending, "first"},
			[]any{string(got.Context), got.Status, got.Stage})
		require.Equal(t, before, b.task(id), "the old one stays as it is")

		// A change of the priority keeps the link; a rerun of the rerun names that one.
		b.change(made, asyncflow.Patch{Priority: asyncflow.Priority{5}})
		require.Equal(t, id.String(), b.task(made).Options.RerunOf)
		_, err = b.Cancel(t.Context(), tenant, made, "no")
		require.NoError(t, err)
		task, err = b.Rerun(t.Context(), tenant, made)
		require.NoError(t, err)
		require.Equal(t, made.String(), task.Options.RerunOf)

		_, err = b.Rerun(t.Context(), tenant, asyncflow.NewTaskID("pipe", 1, 1<<30))
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	})
}

// The context of a rerun is the last one that the first stage was given by a caller.
func TestRerunOfAnEditedTask(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`"typo"`))[0].ID
	b.change(id, edit(`"mended"`))
	b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Output: json.RawMessage(`"out"`)})
	b.change(id, edit(`"of the second stage"`))
	b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	task, err := b.Rerun(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, `"mended"`, string(task.Context))
	_, err = b.Redrive(t.Context(), tenant, id,
		store.Redrive{Stage: "first", Context: json.RawMessage(`"again"`)})
	require.NoError(t, err)
	_, err = b.Cancel(t.Context(), tenant, id, "no")
	require.NoError(t, err)
	task, err = b.Rerun(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, `"again"`, string(task.Context))
}

// An operation makes one new task for each final one that matches, and leaves out children.
func TestRerunTasks(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		pipe := b.put(longSecond())
		ids := b.places(pipe)
		_, due := b.start(store.RerunTasks,
			store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusSucceeded}})
		assert.Equal(t, []any{store.OperationDone, int64(1), int64(1), int64(0)},
			figures(b.finish(due)))
		page, err := b.TaskPage(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 1,
			Status: asyncflow.StatusPending})
		require.NoError(t, err)
		require.Len(t, page.Tasks, 1)
		assert.Equal(t, ids["succeeded"].String(), page.Tasks[0].Options.RerunOf)
		assert.Equal(t, fmt.Sprintf("rerun:%s:%d", due.ID, ids["succeeded"].Number),
			page.Tasks[0].Options.Key)
		_, due = b.start(store.RerunTasks, store.NewOperation{})
		assert.Equal(t, []any{store.OperationDone, int64(4), int64(4), int64(0)},
			figures(b.finish(due)))
		tasks, others := b.reruns()
		assert.Equal(t, []int{5, 4}, []int{tasks, others})
		assert.Equal(t, 5, b.count(`SELECT count(*) FROM tenant_acme.idempotency_keys
			WHERE expires_at < now() + interval '25 h'`), "no key outlives its purpose for long")
		b.checkTokens("pipe")
	})
}

func TestRerunLeavesOutChildren(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{})
	for _, l := range b.leaseAll(b.known(), 2) {
		_, err := b.Rerun(t.Context(), tenant, l.ID)
		require.ErrorContains(t, err, "not final")
		b.settle(b.known(), l, goodEnd)
		_, err = b.Rerun(t.Context(), tenant, l.ID)
		require.ErrorContains(t, err, "is a child of "+id.String())
	}
	_, due := b.start(store.RerunTasks, store.NewOperation{Filter: store.Filter{NoChildren: true}})
	assert.Equal(t, []any{store.OperationDone, int64(0), int64(0), int64(0)},
		figures(b.finish(due)))
	_, due = b.start(store.RerunTasks, store.NewOperation{})
	assert.Equal(t, []any{store.OperationDone, int64(2), int64(0), int64(2)},
		figures(b.finish(due)), "they are skipped even if they are asked for")
}

// A step that submitted its tasks and then died is taken again, and makes none twice.
func TestRerunStepIsRepeated(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.failMany(pipe, 150)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	b.exec(`CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'crash'; END $$`)
	b.exec(`CREATE TRIGGER crash BEFORE UPDATE OF position ON tenant_acme.operations
		FOR EACH ROW EXECUTE FUNCTION crash()`)
	for range 2 {
		_, err := b.StepOperation(t.Context(), due, b.Submit)
		require.ErrorContains(t, err, "crash")
		tasks, others := b.reruns()
		require.Equal(t, []int{100, 100}, []int{tasks, others})
		assert.Equal(t, store.Step{}, b.step(due), "no node takes the step again at once")
		b.exec(`UPDATE tenant_acme.operations SET next_at = created_at`)
	}
	b.exec(`DROP TRIGGER crash ON tenant_acme.operations`)
	assert.Equal(t, []any{store.OperationDone, int64(150), int64(150), int64(0)},
		figures(b.finish(due)))
	tasks, others := b.reruns()
	assert.Equal(t, []int{150, 150}, []int{tasks, others})
}

// Nodes that take steps of one operation die while they submit, or before they write how far they
// came. Others go on, and make one new task for each final one.
func TestRerunsSurviveCrashes(t *testing.T) {
	n, brief := longform.Size(250, 3000), longform.Size(3, 20) // brief: the lives of each node
	b := setup(t)
	b.failMany(b.put(twoStages()), n)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	var nodes sync.WaitGroup
	var cut atomic.Int32
	for k := range 2 {
		nodes.Go(func() {
			for life := range brief {
				node, err := store.Open(t.Context(), store.Config{URL: b.url, Pool: 2, HotPool: 2,
					Node: fmt.Sprintf("node-%d-%d", k, life), NoRoles: pgtest.NoRoles()})
				if !assert.NoError(t, err) {
					return
				}
				committer := dispatcher.NewCommitter(node, nil)
				ctx, die := context.WithCancel(t.Context())
				submit := func(
					ctx context.Context, tenant string, tasks []asyncflow.NewTask,
				) []store.Submitted {
					if life%2 == 0 {
						go die()
					}
					defer die()
					return committer.Submit(ctx, tenant, tasks)
				}
				for ctx.Err() == nil { // another node may be at the step, and is taken for dead
					b.exec(`UPDATE tenant_acme.operations SET next_at = created_at`)
					if _, err := node.StepOperation(ctx, due, submit); err != nil {
						cut.Add(1)
					}
				}
				committer.Close()
				node.Close()
			}
		})
	}
	waitAll(t, &nodes)
	assert.EqualValues(t, 2*brief, cut.Load(), "each life ends in the middle of a step")
	// what a node that died still locks is free soon
	eventually(t, "the operation ends", func() bool {
		b.exec(`UPDATE tenant_acme.operations SET next_at = created_at`)
		_, err := b.StepOperation(t.Context(), due, b.Submit)
		return assert.NoError(t, err) && b.operation(due).State != store.OperationRunning
	})
	assert.Equal(t, []any{store.OperationDone, int64(n), int64(n), int64(0)},
		figures(b.operation(due)))
	tasks, others := b.reruns()
	assert.Equal(t, []int{n, n}, []int{tasks, others}, "each once")
}

// A step takes only some MiB of contexts. A task with a context over the quota is skipped.
func TestRerunOfLargeContexts(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	for range 12 {
		b.submit(newTask(`"` + strings.Repeat("x", 1<<20) + `"`))
	}
	b.submit(newTask(`"short"`))
	b.settleAll(pipe, b.lease(pipe, 13), rejected)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	step := b.step(due)
	assert.Equal(t, 4, step.Done, "4 MiB of contexts")
	assert.Equal(t, []any{store.OperationDone, int64(13), int64(13), int64(0)},
		figures(b.finish(due)))
	limit(t, asyncflow.QuotaContextBytes, 1000, b)
	_, due = b.start(store.RerunTasks, store.NewOperation{})
	assert.Equal(t, []any{store.OperationDone, int64(13), int64(1), int64(12)},
		figures(b.finish(due)))
}

// While a task can't be submitted, the operation waits, says why, and goes on from there.
func TestRerunWaits(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.failMany(pipe, 30)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	full := &asyncflow.Error{Code: asyncflow.CodeQuota, Message: "pending_tasks is reached"}
	part := func(
		ctx context.Context, tenant string, tasks []asyncflow.NewTask,
	) []store.Submitted {
		all := b.Submit(ctx, tenant, tasks[:10])
		for range tasks[10:] {
			all = append(all, store.Submitted{Err: full})
		}
		return all
	}
	step, err := b.StepOperation(t.Context(), due, part)
	require.NoError(t, err)
	assert.Equal(t, 10, step.Done)
	none := func(context.Context, string, []asyncflow.NewTask) []store.Submitted {
		return []store.Submitted{{Err: full}}
	}
	eventually(t, "the next step is due", func() bool {
		step, err = b.StepOperation(t.Context(), due, none)
		return assert.NoError(t, err) && !step.Next.IsZero()
	})
	assert.Zero(t, step.Done)
	assert.True(t, step.Next.After(b.Clock.Now().Add(time.Second)), "it tries again later")
	o := b.operation(due)
	assert.Equal(t, []any{store.OperationRunning, int64(30), int64(10), int64(0)}, figures(o))
	assert.Contains(t, o.Error, "pending_tasks")
	b.exec(`UPDATE tenant_acme.operations SET next_at = now()`)
	eventually(t, "it is done", func() bool {
		b.step(due)
		return b.operation(due).State == store.OperationDone
	})
	o = b.operation(due)
	assert.Equal(t, []any{store.OperationDone, int64(30), int64(30), int64(0)}, figures(o))
	assert.Empty(t, o.Error)
	tasks, others := b.reruns()
	assert.Equal(t, []int{30, 30}, []int{tasks, others})
}

// A step needs no connection while it submits: the submit needs those of the tenant.
func TestRerunHoldsNoConnection(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 3)
	limit(t, asyncflow.QuotaPendingTasks, 1000, b)
	node, err := store.Open(t.Context(), store.Config{URL: b.url, Pool: 2, HotPool: 2, Node: "n",
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	t.Cleanup(node.Close)
	require.Equal(t, 1, node.PoolShare())
	committer := dispatcher.NewCommitter(node, nil)
	t.Cleanup(committer.Close)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	step, err := node.StepOperation(t.Context(), due, committer.Submit)
	require.NoError(t, err)
	assert.Equal(t, 3, step.Done)
	assert.Empty(t, b.operation(due).Error)
}

// What a step did is counted also if the operation was stopped, or taken by another node,
// while it submitted.
func TestRerunIsStoppedMeanwhile(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 150)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	submit := func(
		ctx context.Context, tenant string, tasks []asyncflow.NewTask,
	) []store.Submitted {
		_, err := b.StopOperation(ctx, tenant, due.ID)
		assert.NoError(t, err)
		return b.Submit(ctx, tenant, tasks)
	}
	step, err := b.StepOperation(t.Context(), due, submit)
	require.NoError(t, err)
	assert.Zero(t, step.Next)
	assert.Equal(t, []any{store.OperationStopped, int64(150), int64(100), int64(0)},
		figures(b.operation(due)))

	_, due = b.start(store.RerunTasks, store.NewOperation{})
	slow := func(
		ctx context.Context, tenant string, tasks []asyncflow.NewTask,
	) []store.Submitted {
		b.exec(`UPDATE tenant_acme.operations SET next_at = created_at`)
		b.finish(due)
		return b.Submit(ctx, tenant, tasks)
	}
	step, err = b.StepOperation(t.Context(), due, slow)
	require.NoError(t, err)
	assert.Equal(t, store.Step{}, step)
	assert.Equal(t, []any{store.OperationDone, int64(150), int64(150), int64(0)},
		figures(b.operation(due)))
	tasks, others := b.reruns()
	assert.Equal(t, []int{250, 150}, []int{tasks, others})
}

// One operation of a tenant at a time runs tasks again, with half of the tenant's rate of submits.
func TestRerunsLeaveRoom(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 150)
	limit(t, asyncflow.QuotaSubmitsPerSecond, 40, b)
	o, due := b.start(store.RerunTasks, store.NewOperation{})
	_, err := b.StartOperation(t.Context(), tenant, o.NewOperation)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, o.ID)
	before := b.Clock.Now()
	step := b.step(due)
	assert.Equal(t, 20, step.Done)
	assert.False(t, step.Next.Before(before.Add(time.Second)), "%s", step.Next.Sub(before))
	_, err = b.StopOperation(t.Context(), tenant, o.ID)
	require.NoError(t, err)
	_, err = b.StartOperation(t.Context(), tenant, o.NewOperation)
	require.NoError(t, err)
}

// A task that its dependencies kept from running, or gave nothing, doesn't run without them.
func TestNoRerunWithoutDependencies(t *testing.T) {
	b := setupEdges(t)
	bad, other := b.submit(newBase(""))[0], b.submit(newBase(""))[0]
	failed := b.submit(dependent(byID(bad.ID)))[0]
	task := dependent(byID(other.ID))
	task.Options.ContextFrom = asyncflow.ContextFromDependencies
	cancelled, given := b.submit(task)[0], b.submit(task)[0]
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	b.comesTo(failed.ID, asyncflow.StatusFailed)
	_, err := b.Cancel(t.Context(), tenant, cancelled.ID, "")
	require.NoError(t, err)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`"out"`)})
	b.comesTo(given.ID, asyncflow.StatusPending)
	_, err = b.Cancel(t.Context(), tenant, given.ID, "")
	require.NoError(t, err)
	for id, why := range map[asyncflow.TaskID]string{failed.ID: "because of its dependencies",
		cancelled.ID: "before its dependencies"} {
		_, err := b.Rerun(t.Context(), tenant, id)
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
		require.ErrorContains(t, err, why)
	}
	again, err := b.Rerun(t.Context(), tenant, given.ID)
	require.NoError(t, err)
	assert.Contains(t, string(again.Context), `"output":"out"`)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	assert.Equal(t, []any{store.OperationDone, int64(3), int64(1), int64(2)},
		figures(b.finish(due)))
}

// While its tenant is suspended, an operation makes no task. A key window that is too long by now
// is no reason to skip a task, and what an operation waited for is not its error in the end.
func TestRerunsWaitForTheirTenant(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 3)
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	suspend := func(suspended bool) {
		_, err := b.PatchTenant(t.Context(), tenant, store.TenantPatch{Suspend: &suspended})
		require.NoError(t, err)
		require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	}
	suspend(true)
	assert.Zero(t, b.step(due).Done)
	assert.Equal(t, "the tenant is suspended", b.operation(due).Error)
	suspend(false)
	b.exec(`UPDATE tenant_acme.operations SET next_at = created_at`)
	raced := func(_ context.Context, _ string, tasks []asyncflow.NewTask) []store.Submitted {
		all := make([]store.Submitted, len(tasks))
		for i := range all {
			all[i].Err = asyncflow.InvalidField("key_window", "is too long")
		}
		return all
	}
	step, err := b.StepOperation(t.Context(), due, raced)
	require.NoError(t, err)
	assert.False(t, step.Next.IsZero())
	assert.Contains(t, b.operation(due).Error, "key_window")
	b.exec(`UPDATE tenant_acme.operations SET next_at = created_at`)
	o := b.finish(due)
	assert.Equal(t, []any{store.OperationDone, int64(3), int64(3), int64(0)}, figures(o))
	assert.Empty(t, o.Error)
}
