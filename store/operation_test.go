package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// submitMany submits n tasks of the type pipe.
func (b *bundle) submitMany(n int) {
	b.t.Helper()
	for n > 0 {
		tasks := make([]asyncflow.NewTask, min(n, 1000))
		for i := range tasks {
			tasks[i] = newTask(fmt.Sprint(i))
		}
		b.submit(tasks...)
		n -= len(tasks)
	}
}

// settleAll settles leases at once, each with the outcome that choose returns for it.
func (b *bundle) settleAll(
	pipe *store.Type,
	leases []asyncflow.Lease,
	choose func(int, asyncflow.Lease) asyncflow.Outcome,
) {
	b.t.Helper()
	var wg sync.WaitGroup
	for i, l := range leases {
		o := choose(i, l)
		wg.Add(1)
		b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.Clock.Now())},
			func(r store.Settled) {
				assert.NoError(b.t, r.Err)
				assert.False(b.t, r.Stale)
				wg.Done()
			})
	}
	waitAll(b.t, &wg)
}

func rejected(int, asyncflow.Lease) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"}
}

func done(int, asyncflow.Lease) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
}

// failMany makes n tasks fail in their first stage.
func (b *bundle) failMany(pipe *store.Type, n int) {
	b.t.Helper()
	b.submitMany(n)
	for n > 0 {
		leases := b.lease(pipe, 1000)
		require.NotEmpty(b.t, leases)
		b.settleAll(pipe, leases, rejected)
		n -= len(leases)
	}
}

func (b *bundle) start(
	kind store.OperationKind,
	n store.NewOperation,
) (store.Operation, store.DueOperation) {
	b.t.Helper()
	n.Kind, n.Filter.Type = kind, "pipe"
	o, err := b.StartOperation(b.t.Context(), tenant, n)
	require.NoError(b.t, err)
	return o, store.DueOperation{Tenant: tenant, Type: "pipe", ID: o.ID}
}

func (b *bundle) step(due store.DueOperation) store.Step {
	b.t.Helper()
	step, err := b.StepOperation(b.t.Context(), due, b.Submit)
	require.NoError(b.t, err)
	return step
}

// finish takes all steps of an operation and returns it.
func (b *bundle) finish(due store.DueOperation) store.Operation {
	b.t.Helper()
	for {
		// the clock may have gone back: then the step isn't due yet
		if step := b.step(due); step.Next.IsZero() {
			if o := b.operation(due); o.State != store.OperationRunning {
				return o
			}
		}
	}
}

func (b *bundle) operation(due store.DueOperation) store.Operation {
	b.t.Helper()
	o, err := b.Operation(b.t.Context(), tenant, due.ID)
	require.NoError(b.t, err)
	return o
}

// figures are the results of an operation.
func figures(o store.Operation) []any { return []any{o.State, o.Total, o.Done, o.Skipped} }

func (b *bundle) count(sql string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), sql).Scan(&n))
	return n
}

// An operation does to all tasks of its filter what a single call would do to each.
func TestOperationFilters(t *testing.T) {
	b := setup(t)
	pipe := b.put(longSecond())
	ids := b.places(pipe)
	all := []string{"pending in first", "pending in second", "redriven to first",
		"released in second", "waiting in first", "waiting in second", "running in first",
		"running in second"}
	for name, c := range map[string]struct {
		kind store.OperationKind
		n    store.NewOperation
		want int64
	}{
		"all live": {store.CancelTasks, store.NewOperation{}, int64(len(all))},
		"pending": {store.CancelTasks,
			store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusPending}}, 4},
		"live in second": {store.CancelTasks,
			store.NewOperation{Filter: store.Filter{Stage: "second"}}, 4},
		"waiting, error": {store.CancelTasks,
			store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusWaiting,
				Error: "worker"}}, 1},
		"running": {store.CancelTasks,
			store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusRunning}}, 2},
		"before": {store.CancelTasks,
			store.NewOperation{Filter: store.Filter{Until: time.Unix(1, 0)}}, 0},
		"since": {store.CancelTasks,
			store.NewOperation{Filter: store.Filter{Since: b.Clock.Now().Add(-time.Hour)}},
			int64(len(all))},
		"failed": {store.RedriveTasks, store.NewOperation{}, 2},
		"failed in first": {store.RedriveTasks,
			store.NewOperation{Filter: store.Filter{Stage: "first"}}, 1},
		"cancelled": {store.RedriveTasks,
			store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusCancelled}}, 1},
	} {
		c.n.Kind, c.n.Filter.Type = c.kind, "pipe"
		n, err := b.CountTasks(t.Context(), tenant, c.n)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, n, name)
	}
	o, due := b.start(store.CancelTasks, store.NewOperation{Reason: "enough"})
	assert.Equal(t, []any{store.OperationRunning, int64(8), int64(0), int64(0)}, figures(o))
	o = b.finish(due)
	assert.Equal(t, []any{store.OperationDone, int64(8), int64(8), int64(0)}, figures(o))
	assert.False(t, o.FinishedAt.Before(o.CreatedAt))
	for _, name := range all {
		task, err := b.Task(t.Context(), tenant, ids[name])
		require.NoError(t, err)
		assert.Equal(t, []any{asyncflow.StatusCancelled, "enough"}, []any{task.Status, task.Error},
			name)
	}
	b.checkTokens("pipe")

	_, due = b.start(store.RedriveTasks,
		store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusFailed},
			FromStage: "second"})
	assert.Equal(t, []any{store.OperationDone, int64(2), int64(1), int64(1)},
		figures(b.finish(due)), "one never got there")
	task, err := b.Task(t.Context(), tenant, ids["failed in second"])
	require.NoError(t, err)
	assert.Equal(t, []any{asyncflow.StatusPending, "second", 1},
		[]any{task.Status, task.Stage, task.Attempt})
	b.checkTokens("pipe")

	o, _ = b.start(store.CancelTasks,
		store.NewOperation{Filter: store.Filter{Error: "nothing like this"}})
	assert.Equal(t, store.OperationDone, o.State, "there is nothing to do")
	assert.NotZero(t, o.FinishedAt)
}

func TestOperationIsRefused(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	now := time.Now()
	for name, c := range map[string]struct {
		n     store.NewOperation
		field string
		code  asyncflow.Code
	}{
		"no such type": {store.NewOperation{Filter: store.Filter{Type: "nope"}}, "type",
			asyncflow.CodeNotFound},
		"no such stage": {store.NewOperation{FromStage: "third",
			Filter: store.Filter{Type: "pipe"}}, "from_stage", asyncflow.CodeInvalid},
		"times": {store.NewOperation{Filter: store.Filter{Type: "pipe", Since: now, Until: now}},
			"until", asyncflow.CodeInvalid},
	} {
		c.n.Kind = store.RedriveTasks
		_, err := b.StartOperation(t.Context(), tenant, c.n)
		var known *asyncflow.Error
		require.ErrorAs(t, err, &known, name)
		assert.Equal(t, c.code, known.Code, name)
		assert.Equal(t, c.field, known.Fields[0].Field, name)
	}
	all, _, err := b.OperationPage(t.Context(), tenant, store.Place{}, 500)
	require.NoError(t, err)
	assert.Empty(t, all)
}

// An operation doesn't redrive a task that fails again, during the operation or later, nor a
// task that failed only after the operation began.
func TestRedrivenOnce(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.failMany(pipe, 150)
	later := b.submit(newTask(`"later"`))[0].ID
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	assert.Equal(t, 100, b.step(due).Done)
	leases := b.lease(pipe, 1000)
	assert.Len(t, leases, 101)
	b.settleAll(pipe, leases, rejected)
	assert.Equal(t, []any{store.OperationDone, int64(150), int64(150), int64(0)},
		figures(b.finish(due)))
	assert.Equal(t, 150,
		b.count(`SELECT count(*) FROM tenant_acme.journal_1 WHERE outcome = 'redriven'`))
	task, err := b.Task(t.Context(), tenant, later)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	n, err := b.CountTasks(t.Context(), tenant,
		store.NewOperation{Kind: store.RedriveTasks, Filter: store.Filter{Type: "pipe"}})
	require.NoError(t, err)
	assert.EqualValues(t, 101, n, "another operation finds them")
}

// Tasks that no longer meet the filter when they are visited are skipped; tasks submitted later
// aren't concerned.
func TestOperationSkipsWhatMovedOn(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submitMany(130)
	_, due := b.start(store.CancelTasks, store.NewOperation{})
	b.submitMany(20)
	leases := b.lease(pipe, 40)
	b.settleAll(pipe, leases, rejected)
	o := b.finish(due)
	assert.Equal(t, []any{store.OperationDone, int64(130), int64(90), int64(40)}, figures(o))
	assert.Len(t, b.lease(pipe, 1000), 20)
	b.checkTokens("pipe")
}

// Every task is cancelled, however fast the tasks move between tables meanwhile.
func TestCancelAmongMovingTasks(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].Retry.MaxAttempts = 100
	pipe := b.put(spec)
	b.submitMany(600)
	moving, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for moving.Err() == nil {
				leases := b.lease(pipe, 50)
				var settling sync.WaitGroup
				for i, l := range leases {
					kind := []asyncflow.OutcomeKind{asyncflow.OutcomeReleased,
						asyncflow.OutcomeFailed}[i%2]
					if l.Attempt > 90 {
						kind = asyncflow.OutcomeReleased
					}
					o := asyncflow.Outcome{Kind: kind}
					settling.Add(1)
					b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
						Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.Clock.Now())},
						func(store.Settled) { settling.Done() })
				}
				waitAll(t, &settling)
			}
		})
	}
	_, due := b.start(store.CancelTasks, store.NewOperation{})
	eventually(t, "the end of the operation", func() bool {
		_, err := b.StepOperation(t.Context(), due, b.Submit)
		if err != nil {
			require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
		}
		return b.operation(due).State != store.OperationRunning
	})
	stop()
	waitAll(t, &wg)
	assert.Equal(t, []any{store.OperationDone, int64(600), int64(600), int64(0)},
		figures(b.operation(due)))
	assert.Equal(t, 600,
		b.count(`SELECT count(*) FROM tenant_acme.journal_1 WHERE final = 'cancelled'`))
	b.checkTokens("pipe")
}

// An operation is deleted with its type; a later step finds nothing.
func TestTypeOfAnOperationIsDeleted(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 10)
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	assert.Equal(t, store.Step{}, b.step(due))
	_, err := b.Operation(t.Context(), tenant, due.ID)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	b.put(twoStages())
	assert.Equal(t, store.Step{}, b.step(due))
}

// An operation on a stage that was removed meanwhile can't go on, and its error says so.
func TestOperationFails(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 10)
	_, due := b.start(store.RedriveTasks, store.NewOperation{FromStage: "first"})
	spec := twoStages()
	spec.Stages = spec.Stages[1:]
	b.put(spec)
	assert.Equal(t, store.Step{}, b.step(due))
	o := b.operation(due)
	assert.Equal(t, []any{store.OperationFailed, int64(10), int64(0), int64(0)}, figures(o))
	assert.Contains(t, o.Error, `from_stage is "first", which is not a stage of pipe`)
	assert.NotZero(t, o.FinishedAt)
}

func TestOperationsListed(t *testing.T) {
	b := setupTwo(t)
	b.failMany(b.put(twoStages()), 10)
	var ids []string
	for range 4 {
		o, _ := b.start(store.RedriveTasks, store.NewOperation{Pace: 0.5,
			Filter: store.Filter{Stage: "first", Error: "no", Since: time.Unix(1, 0).UTC()}})
		ids = append(ids, o.ID)
		known, err := b.Operation(t.Context(), tenant, o.ID)
		require.NoError(t, err)
		assert.Equal(t, o.NewOperation, known.NewOperation)
	}
	_, err := b.StopOperation(t.Context(), tenant, ids[0])
	require.NoError(t, err)
	_, err = b.StopOperation(t.Context(), tenant, ids[1])
	require.NoError(t, err)
	b.exec(`UPDATE tenant_acme.operations SET created_at = created_at - interval '31 d',
			finished_at = finished_at - interval '31 d'
		WHERE id = ANY ($1::uuid[])`, []string{ids[0], ids[2]})
	listed := func() (got []string) {
		all, _, err := b.OperationPage(t.Context(), tenant, store.Place{}, 500)
		require.NoError(t, err)
		for _, o := range all {
			got = append(got, o.ID)
		}
		return got
	}
	assert.Equal(t, []string{ids[3], ids[1], ids[2]}, listed(),
		"newest first; a running one however old")
	due, err := b.DueOperations(t.Context(), []string{tenant, "other"},
		b.Clock.Now().Add(time.Second))
	require.NoError(t, err)
	require.Len(t, due, 2)
	assert.Equal(t, []string{ids[2], ids[3]}, []string{due[0].ID, due[1].ID}, "first due first")
	assert.Equal(t, []string{tenant, "pipe"}, []string{due[0].Tenant, due[0].Type})
	first, err := b.FirstSteps(t.Context(), []string{tenant, "other"})
	require.NoError(t, err)
	assert.Len(t, first, 1)
	assert.True(t, first[tenant].Equal(due[0].At))
	n, err := b.ForgetOperations(t.Context(), tenant)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	_, err = b.Operation(t.Context(), tenant, ids[0])
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	_, err = b.Operation(t.Context(), "other", ids[3])
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "of another tenant")
}

// Many failed tasks are redriven and done.
func TestManyAreRedriven(t *testing.T) {
	longform.Costly(t)
	n := longform.Size(1200, 10_000) // several steps of the operation
	b := setup(t)
	spec := twoStages()
	spec.Stages = spec.Stages[:1]
	pipe := b.put(spec)
	b.failMany(pipe, n)
	start := time.Now()
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	counted := time.Since(start)
	o := b.finish(due)
	took := time.Since(start) - counted
	t.Logf("counted %d in %v, redrove %.0f a second", n, counted.Round(time.Millisecond),
		float64(n)/took.Seconds())
	assert.Equal(t, []any{store.OperationDone, int64(n), int64(n), int64(0)}, figures(o))
	for left := n; left > 0; {
		leases := b.lease(pipe, 1000)
		require.NotEmpty(t, leases)
		b.settleAll(pipe, leases, done)
		left -= len(leases)
	}
	assert.Equal(t, n,
		b.count(`SELECT count(*) FROM tenant_acme.journal_1 WHERE final = 'succeeded'`))
	b.checkTokens("pipe")
}
