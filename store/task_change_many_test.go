package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// An operation gives all pending and waiting tasks of its filter the place that a change gives to a
// single one. It leaves the others alone.
func TestPrioritizeTasks(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		pipe := b.put(longSecond())
		ids := b.places(pipe)
		before, since := map[string]store.Task{}, map[string]time.Time{}
		for name, id := range ids {
			task, err := b.Task(t.Context(), tenant, id)
			require.NoError(t, err)
			before[name], since[name] = task, b.since(pipe, id)
		}
		_, due := b.start(store.PrioritizeTasks, store.NewOperation{
			Priority: asyncflow.Priority{600}, Filter: store.Filter{Stage: "second"}})
		assert.Equal(t, []any{store.OperationDone, int64(3), int64(3), int64(0)},
			figures(b.finish(due)))
		_, due = b.start(store.PrioritizeTasks,
			store.NewOperation{Priority: asyncflow.Priority{3600}})
		assert.Equal(t, []any{store.OperationDone, int64(6), int64(6), int64(0)},
			figures(b.finish(due)))
		for name, id := range ids {
			task, err := b.Task(t.Context(), tenant, id)
			require.NoError(t, err)
			was := before[name]
			if was.Status != asyncflow.StatusPending && was.Status != asyncflow.StatusWaiting {
				assert.Equal(t, was, task, name)
				continue
			}
			assert.Equal(t, asyncflow.Priority{3600}, task.Options.Priority, name)
			assert.Equal(t, []any{was.Status, was.Stage, was.Attempt, was.Error},
				[]any{task.Status, task.Stage, task.Attempt, task.Error}, name)
			want := was.OrderTime
			if was.Status == asyncflow.StatusPending {
				want = want.Add(-time.Hour)
			}
			assert.Equal(t, want, task.OrderTime, name)
			assert.Equal(t, since[name], b.since(pipe, id), "%s: it has been due for as long", name)
			single, err := b.Change(t.Context(), tenant, id,
				asyncflow.Patch{Priority: asyncflow.Priority{3600}})
			require.NoError(t, err)
			assert.Equal(t, task, single, "%s: a single change finds nothing to do", name)
		}
		b.checkTokens("pipe")
		changed := fill(pipe, 1, `SELECT count(*) FROM {journal} WHERE outcome = 'changed'`)
		n := b.count(changed)
		_, due = b.start(store.PrioritizeTasks,
			store.NewOperation{Priority: asyncflow.Priority{3600}})
		assert.Equal(t, int64(6), b.finish(due).Done, "they have it")
		assert.Equal(t, n, b.count(changed), "nothing is written again")
		b.checkTokens("pipe")
	})
}

// since returns since when a task is due, or will be; zero: it is in no line.
func (b *bundle) since(t *store.Type, id asyncflow.TaskID) (at time.Time) {
	b.t.Helper()
	err := b.db.QueryRow(b.t.Context(), fill(t, 1, `SELECT coalesce(max(coalesce(since, order_time)),
		'0001-01-01Z') FROM (SELECT id, since, order_time FROM {ready} WHERE type = {number}
		UNION ALL SELECT id, since, order_time FROM {wait} WHERE type = {number}) l WHERE id = $1`),
		id.Number).Scan(&at)
	require.NoError(b.t, err)
	return at
}

// A task that waits for its children gets the priority, too. If the operation leaves out children,
// they get it from their parent.
func TestPriorityOfParents(t *testing.T) {
	for name, filter := range map[string]store.Filter{
		"all": {}, "no children": {NoChildren: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := setupFanOut(t)
			id := b.fanOut(asyncflow.FanOut{})
			before := b.task(id)
			require.Equal(t, asyncflow.WaitChildren, before.WaitsFor)
			_, due := b.start(store.PrioritizeTasks, store.NewOperation{
				Priority: asyncflow.Priority{60}, Filter: filter})
			n := map[bool]int64{true: 1, false: 3}[filter.NoChildren]
			assert.Equal(t, []any{store.OperationDone, n, n, int64(0)}, figures(b.finish(due)))
			b.followUp()
			after := b.task(id)
			assert.Equal(t, asyncflow.Priority{60}, after.Options.Priority)
			assert.Equal(t, []any{before.OrderTime, before.WaitsFor, before.Stage, before.Attempt,
				before.Children}, []any{after.OrderTime, after.WaitsFor, after.Stage, after.Attempt,
				after.Children}, "it keeps its place")
			assert.Equal(t, 3,
				b.count(`SELECT count(*) FROM tenant_acme.journal_1 WHERE outcome = 'changed'`))
			for _, l := range b.leaseAll(b.known(), 2) {
				assert.Equal(t, asyncflow.Priority{60}, l.Options.Priority)
				b.settle(b.known(), l, goodEnd)
			}
			b.followUp()
			assert.Equal(t, "second", b.leaseAll(b.known(), 1)[0].Stage)
			b.checkTokens("pipe")
		})
	}
}

// Nodes that take steps of one operation change each task once, and a stop ends it.
func TestNodesSharePriorities(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	other := open(t, b.url, "node-2")
	b.submitMany(350)
	_, due := b.start(store.PrioritizeTasks, store.NewOperation{Priority: asyncflow.Priority{60}})
	assert.Equal(t, 100, b.step(due).Done)
	o, err := b.StopOperation(t.Context(), tenant, due.ID)
	require.NoError(t, err)
	assert.Equal(t, []any{store.OperationStopped, int64(350), int64(100), int64(0)}, figures(o))
	assert.Equal(t, store.Step{}, b.step(due), "there is no step after it")
	changed := `SELECT count(*) FROM tenant_acme.journal_1 WHERE outcome = 'changed'`
	assert.Equal(t, 100, b.count(changed))
	_, due = b.start(store.PrioritizeTasks, store.NewOperation{Priority: asyncflow.Priority{90}})
	var wg sync.WaitGroup
	for _, node := range []*bundle{b, other, b, other} {
		wg.Go(func() {
			for b.operation(due).State == store.OperationRunning {
				_, err := node.StepOperation(t.Context(), due, b.Submit)
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	waitAll(t, &wg)
	assert.Equal(t, []any{store.OperationDone, int64(350), int64(350), int64(0)},
		figures(b.operation(due)))
	assert.Equal(t, 450, b.count(changed))
	b.checkTokens("pipe")
}

// A task that is leased, or ends, while the operation runs is skipped.
func TestPrioritySkipsTasksThatMoveOn(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submitMany(30)
	_, due := b.start(store.PrioritizeTasks, store.NewOperation{Priority: asyncflow.Priority{60}})
	leases := b.lease(pipe, 10)
	b.settleAll(pipe, leases[:5], rejected)
	// another transaction takes a token row while the step waits for it
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), `DELETE FROM tenant_acme.ready_1
		WHERE id = (SELECT max(id) FROM tenant_acme.ready_1)`)
	require.NoError(t, err)
	stepped := make(chan store.Step, 1)
	go func() {
		step, err := b.StepOperation(t.Context(), due, b.Submit)
		assert.NoError(t, err)
		stepped <- step
	}()
	eventually(t, "the step waits for the row", func() bool {
		return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, 19, receive(t, stepped).Done)
	assert.Equal(t, []any{store.OperationDone, int64(30), int64(19), int64(11)},
		figures(b.finish(due)))
	assert.Equal(t, 19,
		b.count(`SELECT count(*) FROM tenant_acme.journal_1 WHERE outcome = 'changed'`))
}

// A list of priorities must fit the type, at the start and at each step. An operation that only
// newer nodes know waits for them.
func TestPriorityOperationsRefused(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.submitMany(1)
	n := store.NewOperation{Kind: store.PrioritizeTasks, Priority: asyncflow.Priority{1, 2, 3},
		Filter: store.Filter{Type: "pipe"}}
	_, err := b.StartOperation(t.Context(), tenant, n)
	assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	_, err = b.CountTasks(t.Context(), tenant, n)
	assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	_, due := b.start(store.PrioritizeTasks, store.NewOperation{Priority: asyncflow.Priority{1, 2}})
	_, err = b.db.Exec(t.Context(), `ALTER TABLE tenant_acme.operations
		DROP CONSTRAINT operations_kind_check; UPDATE tenant_acme.operations SET kind = 'newer'`)
	require.NoError(t, err)
	assert.Equal(t, store.Step{}, b.step(due))
	assert.Equal(t, store.OperationRunning, b.operation(due).State)
	_, err = b.db.Exec(t.Context(), `UPDATE tenant_acme.operations SET kind = 'priority'`)
	require.NoError(t, err)
	assert.Equal(t, int64(1), b.finish(due).Done)
}

// A change keeps the code of the last error: what a filter by it found, it finds again.
func TestDelayByCodeTwice(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	for code, o := range map[string]asyncflow.Outcome{"503": failure(503, 0, "503 Unavailable"),
		"timeout": failure(0, asyncflow.FailureTimeout, "no answer within 5s"),
		"lost":    {Kind: asyncflow.OutcomeLost, Error: "the lease ran out"},
		"busy":    failure(200, 0, "busy: later")} {
		id := b.submit(newTask("1"))[0].ID
		b.settle(pipe, b.leaseOne(pipe), o)
		for n := range 3 {
			_, due := b.start(store.DelayTasks, store.NewOperation{
				Filter: store.Filter{Code: code}, RunAt: b.Clock.Now().Add(time.Hour)})
			assert.Equal(t, []any{store.OperationDone, int64(1), int64(1), int64(0)},
				figures(b.finish(due)), "%s: %d", code, n)
			assert.Equal(t, code, b.task(id).Code, n)
		}
	}
	b.checkTokens("pipe")
}
