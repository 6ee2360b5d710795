package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A step that fails at its very end changes and counts nothing; the next try does its work once.
func TestStepIsAtomic(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.failMany(pipe, 250)
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	assert.Equal(t, 100, b.step(due).Done)
	before := b.operation(due)
	_, err := b.db.Exec(t.Context(),
		`ALTER TABLE tenant_acme.operations ADD CONSTRAINT broken CHECK (done <= 100)`)
	require.NoError(t, err)
	_, err = b.StepOperation(t.Context(), due, b.Submit)
	require.Error(t, err)
	assert.Equal(t, before, b.operation(due))
	assert.Equal(t, 100, b.count(`SELECT count(*) FROM tenant_acme.ready_1`))
	b.checkTokens("pipe")
	_, err = b.db.Exec(t.Context(), `ALTER TABLE tenant_acme.operations DROP CONSTRAINT broken`)
	require.NoError(t, err)
	assert.Equal(t, []any{store.OperationDone, int64(250), int64(250), int64(0)},
		figures(b.finish(due)))
	assert.Equal(t, 250,
		b.count(`SELECT count(*) FROM tenant_acme.journal_1 WHERE outcome = 'redriven'`))
	b.checkTokens("pipe")
}

// Nodes that take steps of the same operation at once change each task once.
func TestNodesShareAnOperation(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	pipe := b.put(twoStages())
	other := open(t, b.url, "node-2")
	b.failMany(pipe, 1000)
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	did := 0
	for _, node := range []*bundle{b, other, b, other} {
		wg.Go(func() {
			for {
				step, err := node.StepOperation(t.Context(), due, b.Submit)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				did += step.Done
				mu.Unlock()
				if step.Next.IsZero() && b.operation(due).State != store.OperationRunning {
					return
				}
			}
		})
	}
	waitAll(t, &wg)
	assert.Equal(t, 1000, did)
	assert.Equal(t, []any{store.OperationDone, int64(1000), int64(1000), int64(0)},
		figures(b.operation(due)))
	assert.Equal(t, 1000,
		b.count(`SELECT count(*) FROM tenant_acme.journal_1 WHERE outcome = 'redriven'`))
	b.checkTokens("pipe")
}

// A step doesn't wait for another node that locks the operation.
func TestStepSkipsAHeldOperation(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 1)
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.operations FOR UPDATE`)
	require.NoError(t, err)
	assert.Equal(t, store.Step{}, b.step(due))
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Equal(t, 1, b.step(due).Done)
}

// The next step is due when the pace allows for the tasks of the last one, counted from now:
// missed time isn't made up for.
func TestPace(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 200)
	for name, c := range map[string]struct {
		pace  float64
		done  int
		pause time.Duration
	}{
		"a few a second":  {5, 5, time.Second},
		"rarely":          {0.25, 1, 4 * time.Second},
		"not whole":       {2.5, 2, 800 * time.Millisecond},
		"more than fits":  {1000, 100, 100 * time.Millisecond},
		"as fast as goes": {0, 100, 0},
	} {
		_, due := b.start(store.RedriveTasks, store.NewOperation{Pace: c.pace})
		b.exec(`UPDATE tenant_acme.operations SET next_at = next_at - interval '1 h' WHERE id = $1`,
			due.ID)
		before := b.Clock.Now()
		step := b.step(due)
		assert.Equal(t, c.done, step.Done, name)
		assert.WithinRange(t, step.Next, before.Add(c.pause), b.Clock.Now().Add(c.pause), name)
		if c.pause > 500*time.Millisecond {
			assert.Equal(t, store.Step{}, b.step(due), "%s: not due yet", name)
		}
		_, err := b.StopOperation(t.Context(), tenant, due.ID)
		require.NoError(t, err)
		_, back := b.start(store.CancelTasks, store.NewOperation{})
		b.finish(back)
		_, back = b.start(store.RedriveTasks,
			store.NewOperation{Filter: store.Filter{Status: asyncflow.StatusCancelled}})
		b.finish(back)
		pipe, err := b.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		b.settleAll(pipe, b.lease(pipe, 1000), rejected)
	}
}

// A stop waits for the step under way; after it no task is changed.
func TestStopWaitsForAStep(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submitMany(150)
	_, due := b.start(store.CancelTasks, store.NewOperation{})
	tx, err := b.db.Begin(t.Context()) // delays the step
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(),
		`SELECT FROM tenant_acme.ready_1
			WHERE id = (SELECT min(id) + 50 FROM tenant_acme.ready_1) FOR UPDATE`)
	require.NoError(t, err)
	stepped, stopped := make(chan store.Step, 1), make(chan store.Operation, 1)
	go func() {
		step, err := b.StepOperation(t.Context(), due, b.Submit)
		assert.NoError(t, err)
		stepped <- step
	}()
	waiting := func(n int) func() bool {
		return func() bool {
			return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
				WHERE wait_event_type = 'Lock' AND datname = current_database()`) == n
		}
	}
	eventually(t, "the step waits for the row", waiting(1))
	go func() {
		o, err := b.StopOperation(t.Context(), tenant, due.ID)
		assert.NoError(t, err)
		stopped <- o
	}()
	eventually(t, "the stop waits for the step", waiting(2))
	require.NoError(t, tx.Rollback(t.Context()))
	step := receive(t, stepped)
	o := receive(t, stopped)
	assert.Equal(t, 100, step.Done)
	assert.Equal(t, []any{store.OperationStopped, int64(150), int64(100), int64(0)}, figures(o))
	assert.NotZero(t, o.FinishedAt)
	assert.Equal(t, store.Step{}, b.step(due), "there is no step after it")
	assert.Len(t, b.lease(pipe, 1000), 50)
	again, err := b.StopOperation(t.Context(), tenant, due.ID)
	require.NoError(t, err)
	assert.Equal(t, o, again)
	_, err = b.StopOperation(t.Context(), tenant, "01890a5d-ac96-774b-bcce-b302099a8057")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// While its type is being changed or deleted, a step is left for later: it neither waits nor
// blocks.
func TestStepGivesWayToItsType(t *testing.T) {
	b := setup(t)
	b.failMany(b.put(twoStages()), 10)
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.task_types WHERE name = 'pipe' FOR UPDATE`)
	require.NoError(t, err)
	assert.Equal(t, store.Step{}, b.step(due))
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Equal(t, 10, b.step(due).Done)
}
